"""The documentation as a site: ``make site``. mkdocs.yml names this module as its hooks.

The pages stay what they are in a clone, Markdown that links to files of the repository. The navigation is
that of docs/README.md; a file outside docs that a page links to comes along, in ``tree/``.
"""
import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
START = DOCS / "README.md"
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
# GitHub begins a list where Python's Markdown wants an empty line first.
LIST_OF_A_PARAGRAPH = re.compile(r"^((?![-*] |\d+\. )\S.*\n)(?=[-*] |\d+\. )", re.MULTILINE)


def pages():
    """Every page of docs, sorted."""
    return sorted(DOCS.rglob("*.md"))


def title(page):
    """The first heading of a page."""
    return re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)[1].replace("`", "")


def navigation():
    """MkDocs' ``nav``: the sections of docs/README.md with the pages that their tables name, the pages below
    these (``architecture.md``: ``architecture/``), and what no table names.
    """
    left, sections = set(pages()) - {START}, [{"Start": place(START)}]
    for section in re.split(r"^## ", START.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        entries = []
        for named in [(DOCS / link).resolve() for link in LINK.findall(section)]:
            entries += _entries([named], left)
            if below := _entries(sorted(named.with_suffix("").glob("*.md")), left):
                entries.append({named.stem.capitalize(): below})
        sections.append({section.partition("\n")[0]: entries})
    sections.append({"More": _entries(sorted(left), left)})
    others = [page for page in outside() if page.suffix == ".md"]
    return [*sections, {"The repository": _entries(others, set(others))}]


def _entries(listed, left):
    """The entries of those pages that are left, which then are left no more."""
    found = [page for page in listed if page in left]
    left.difference_update(found)
    return [{title(page): place(page)} for page in found]


def place(path):
    """Where a file of the repository lies in the site's sources."""
    path = path.relative_to(ROOT)
    return str(path.relative_to("docs") if path.parts[0] == "docs" else Path("tree") / path)


def targets(path):
    """The files and folders of the repository that a page links to."""
    return [(path.parent / link).resolve() for link in LINK.findall(path.read_text(encoding="utf-8"))]


def outside():
    """The files outside docs that pages link to, with those that these link to."""
    found, looked_at = set(), set()
    while left := (found | set(pages())) - looked_at:
        looked_at |= left
        linked = {path for page in left if page.suffix == ".md" for path in targets(page)}
        found |= {path for path in linked if path.is_file() and not path.is_relative_to(DOCS)}
    return sorted(found)


def led_inside(text, path):
    """The text of a page with links that hold in the site. Links to folders lead to their first page."""
    def lead(match):
        target = (path.parent / match[0]).resolve()
        if target.is_dir():
            target = min(target.glob("*.md"), default=target)
        return os.path.relpath(place(target), Path(place(path)).parent)

    parts = FENCED.split(text)
    parts[::2] = [LIST_OF_A_PARAGRAPH.sub(r"\1\n", LINK.sub(lead, part)) for part in parts[::2]]
    return "".join(parts)


def on_config(config):
    """MkDocs' event: the navigation is known."""
    config.nav = navigation()
    return config


def on_files(files, config):
    """MkDocs' event: files come along that pages link to."""
    from mkdocs.structure.files import File
    for path in outside():
        files.append(File.generated(config, place(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, **_):
    """MkDocs' event: a page's links."""
    source = page.file.src_uri
    outside_docs = source.startswith("tree/")
    return led_inside(markdown, ROOT / source.removeprefix("tree/") if outside_docs else DOCS / source)
