"""Names that would break a page which trusts them: everywhere they are text, and whole."""
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.support.waiting import wait_until
from tests.ui.furnished import HOSTILE

LISTS = (
    "queues", "exchanges", "connections", "channels", "consumers", "users", "vhosts", "policies",
    "operator-policies",
)


def user_named(name):
    """A user's name has no NUL."""
    return name.replace("\0", "")


def shown(name):
    """As the page makes it visible: control characters as their symbols, marks of direction by number."""
    def one(character):
        code = ord(character)
        if code < 0x20:
            return chr(0x2400 + code)
        return f"\u27e8U+{code:04X}\u27e9" if code in (0x202e, 0x2066, 0x2069) else character
    return "".join(map(one, name))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A broker in which everything has such a name."""
    import pika

    from tests.support.broker_process import BrokerProcess
    from tests.support.page import API
    with BrokerProcess(tmp_path_factory.mktemp("hostile") / "data", http_port=0) as process:
        api = API(f"http://127.0.0.1:{process.ports['http']}")
        connection = pika.BlockingConnection(pika.URLParameters(f"{process.amqp_url}?heartbeat=0"))
        channel = connection.channel()
        for name in HOSTILE:
            escaped = quote(name, safe="")
            api.put(f"queues/%2F/{escaped}", {"durable": True, "arguments": {"x-dead-letter-exchange": name}})
            api.put(f"exchanges/%2F/{escaped}", {"type": "topic"})
            binding = {"routing_key": name, "arguments": {name: name}}
            api.post(f"bindings/%2F/e/{escaped}/q/{escaped}", binding)
            api.put(f"vhosts/{escaped}", {"description": name, "tags": name})
            user = quote(user_named(name), safe="")
            api.put(f"users/{user}", {"password": "x", "tags": name.replace(",", "")})
            policy = {"pattern": "^nothing$", "definition": {"dead-letter-exchange": name}}
            api.put(f"policies/%2F/{escaped}", policy)
            api.put(f"operator-policies/%2F/{escaped}", {**policy, "definition": {"max-length": 1}})
            channel.basic_consume(name, lambda *_: None, consumer_tag=name)
        yield api.base
        connection.close()


@pytest.fixture
def page(browser_context, hostile):
    ui = browser_context(hostile)
    ui.page.on("dialog", lambda dialog: ui._complain(f"a dialogue: {dialog.message}"))
    ui.log_in()
    return ui


@pytest.mark.parametrize("path", LISTS)
def test_lists_show_names_as_text(page, path):
    page.open(f"#/{path}")

    if path not in ("connections", "channels"):
        called = user_named if path == "users" else str
        wanted = {shown(called(name)).strip() for name in HOSTILE}
        names = page.page.locator("tbody bdi.name")
        wait_until(
            lambda: wanted <= {name.strip() for name in names.all_inner_texts()},
            sleep=lambda _: page.page.wait_for_timeout(50))
    assert page.page.locator("#main script, #main img").count() == 0
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_links_lead_to_the_thing_of_that_name(page, number):
    name = HOSTILE[number]
    escaped = quote(name, safe="")
    user = user_named(name)
    for path, title, tab in (
        (f"queues/%2F/{escaped}", name, "Bindings"), (f"exchanges/%2F/{escaped}", name, "Bindings"),
        (f"vhosts/{escaped}", name, None), (f"users/{quote(user, safe='')}", user, None),
    ):
        page.open(f"#/{path}")
        assert page.page.get_by_role("heading", level=1).inner_text().strip() == shown(title).strip()
        expect(page.page.locator("#main .failure")).to_have_count(0)
        if tab:
            page.page.get_by_role("link", name=tab, exact=True).click()
            values = page.page.locator("tbody dd bdi.name")
            expect(values.filter(has_text=shown(name).strip()[:20]).first).to_be_visible()
    assert page.page.locator("#main script, #main img").count() == 0


def test_palette_and_questions_show_them_as_text(page):
    page.open("#/queues")
    page.page.keyboard.press("Control+k")
    page.page.get_by_role("combobox", name="Search").fill("script")
    found = page.page.get_by_role("listbox", name="Found").get_by_role("option")
    expect(found.filter(has_text=HOSTILE[0]).first).to_be_visible()
    page.page.keyboard.press("Escape")
    for box in page.page.get_by_label("Choose all rows").all():
        box.check()
    page.page.get_by_role("button", name="Delete…").click()

    expect(page.page.get_by_role("dialog")).to_contain_text(HOSTILE[0])


@pytest.mark.parametrize("dots", [".", ".."])
def test_a_name_of_dots_is_not_asked_for_since_browsers_would_ask_for_something_else(ui, dots):
    """``DELETE /api/queues/V/./contents``, which purges ".", would delete the queue "contents"."""
    ui.page.goto(ui.base)

    answer = ui.page.evaluate("""async dots => {
        const {at} = await import("/ui/js/core/api.js");
        try { return at("queues", "/", dots); } catch (error) { return error.message; }
    }""", dots)

    assert answer.startswith(f"A browser cannot send the name {dots} in an address:")
