"""The page's sources: nothing in them makes HTML of text, or styles and scripts that the policy forbids."""
import re

import pytest

from gomq_py.http.page import FOLDER

SOURCES = sorted(path for path in FOLDER.rglob("*") if path.suffix in (".js", ".html", ".css"))
FORBIDDEN = (
    r"\b(?:inner|outer)HTML\b", r"\binsertAdjacentHTML\b", r"\bdocument\.write", r"\beval\s*\(",
    r"\bnew Function\b",
    r"\bsetHTMLUnsafe\b", r"\bcreateContextualFragment\b", r"\bDOMParser\b", r"\bsrcdoc\b",
    r"setTimeout\(\s*[\"'`]", r"https?://(?!www\.w3\.org/2000/svg)",
)
PATHS = re.compile(r"""(?:from|import\()\s*["'](\.[^"']+)["']""")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_source_keeps_to_the_policy(path):
    text = path.read_text(encoding="utf-8")

    assert [pattern for pattern in FORBIDDEN if re.search(pattern, text)] == []
    if path.suffix == ".html":
        assert not re.search(r"""\son\w+=|\sstyle=|<style|<script(?![^>]*\ssrc=)""", text)


@pytest.mark.parametrize("path", [one for one in SOURCES if one.suffix == ".js"], ids=lambda path: path.name)
def test_what_a_module_imports_is_there(path):
    code = re.sub(r"^\s*//.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    imported = PATHS.findall(code)

    assert [one for one in imported if not (path.parent / one).resolve().is_file()] == []


def test_whatever_the_page_asks_for_first_is_there():
    text = (FOLDER / "index.html").read_text(encoding="utf-8")
    named = re.findall(r"""(?:href|src)="/ui/([^"]+)\"""", text)

    assert named and [one for one in named if not (FOLDER / one).is_file()] == []
