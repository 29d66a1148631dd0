"""The documentation as a site: all pages are in its navigation and its search, and their links hold."""
import json
import os
import subprocess
import sys

from tests.site import DOCS, led_inside, navigation, outside, pages, place
from tests.support.waiting import in_time
from tests.unit.source_tree import ROOT


def listed(entries):
    """The pages of a navigation, in its order."""
    for entry in entries:
        for value in entry.values():
            yield from listed(value) if isinstance(value, list) else [value]


def test_navigation_has_each_page_once():
    found = list(listed(navigation()))
    others = [path for path in outside() if path.suffix == ".md"]

    assert sorted(found) == sorted(map(place, [*pages(), *others]))
    assert found.index("first-steps.md") < found.index("configuration.md") < found.index("where.md")


def test_links_to_files_of_the_repository_lead_to_copies_of_them():
    text = "[all](../etc/gomq.ini) [why](decisions) [how](limits.md#users) [else](https://project.example)"

    assert led_inside(text, DOCS / "configuration.md") == (
        "[all](tree/etc/gomq.ini) [why](decisions/0001-records-acks-and-recovery.md) [how](limits.md#users) "
        "[else](https://project.example)")
    assert led_inside("[pages](docs/README.md)", ROOT / "README.md") == "[pages](../README.md)"


def test_list_below_a_paragraph_is_a_list_and_code_stays_as_it_is():
    list_, code = "- one\n- other\n", "\n```yaml\nlist:\n- [one](x.md)\n```\n"

    assert led_inside(f"Two:\n{list_}{code}", DOCS / "limits.md") == f"Two:\n\n{list_}{code}"


def test_site_is_built_with_a_search_and_every_link_holds(tmp_path):
    finished = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
        timeout=in_time(100))
    assert (finished.returncode, "WARNING" in finished.stderr) == (0, False), finished.stderr

    found = json.loads((tmp_path / "site/search/search_index.json").read_text())["docs"]
    searched = {entry["location"].strip("/") for entry in found}
    assert {path.stem for path in DOCS.glob("*.md")} - {"README"} - searched == set()
    assert "https://fonts" not in (tmp_path / "site/index.html").read_text()
