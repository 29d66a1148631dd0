"""Every page of the table: it is shown, complains of nothing, and can be used by everybody."""
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from gomq_py.http.page import FOLDER

INDEX = (FOLDER / "js" / "pages" / "index.js").read_text(encoding="utf-8")
PAGES = re.findall(r'\{path: "([^"]+)"', INDEX)

# An experimental one besides the usual: what is said of a link begins with what is seen of it.
RULES = {"rules": {"label-content-name-mismatch": {"enabled": True}}}


def told(results):
    return [
        f"{one['id']}: {one['help']}: {[each['html'][:200] for each in one['nodes'][:3]]}"
        for one in results.response["violations"]
    ]


@pytest.mark.parametrize("path", PAGES)
def test_page_is_shown_and_accessible_in_light_and_dark_and_no_wider_than_a_narrow_screen(
    look, furnished, path
):
    look.page.emulate_media(color_scheme="light")
    look.open(furnished.address(path))
    expect(look.page.get_by_role("heading", level=1)).to_have_count(1)
    expect(look.page.locator("#main .failure")).to_have_count(0)

    light = told(Axe().run(look.page, options=RULES))
    look.page.emulate_media(color_scheme="dark")
    dark = told(Axe().run(look.page, options=RULES))
    look.page.set_viewport_size({"width": 400, "height": 800})
    width = look.page.evaluate("document.documentElement.scrollWidth")

    assert (light, dark) == ([], []) and width <= 400
