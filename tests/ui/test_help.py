"""Help in the page: hints in dialogs, and the description of the HTTP API."""
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.ui.test_pages import RULES, told


def test_fields_of_a_new_queue_name_their_argument_and_say_what_it_does(ui, api, name):
    ui.open("#/queues")
    ui.page.get_by_role("button", name="Declare\u2026").click()
    dialog = ui.page.get_by_role("dialog")
    overflow = dialog.get_by_label("Overflow x-overflow")

    expect(dialog.get_by_label("Name")).to_be_focused()
    expect(overflow.locator("option")).to_have_text(
        ["drop-head (default)", "reject-publish", "reject-publish-dlx"])
    expect(dialog.get_by_text("Most ready messages in the queue")).to_contain_text("Default: No limit.")

    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("x-max-length").fill("10")
    overflow.select_option("reject-publish")
    dialog.get_by_role("button", name="+ x-message-group-limit").click()
    expect(dialog.locator(".hints [role=status]")).to_contain_text("Most unacknowledged messages of one")
    dialog.get_by_role("button", name="+ x-message-group", exact=True).click()
    dialog.get_by_role("button", name="Declare").click()
    expect(dialog).to_have_count(0)
    assert api.get(f"queues/%2F/{name}")["arguments"] == {
        "x-max-length": 10, "x-overflow": "reject-publish", "x-message-group-limit": 1,
        "x-message-group": "header:customer"}


def test_a_type_of_queue_or_exchange_has_its_own_arguments(ui, api, name):
    dialog = ui.declare("#/queues", name)
    dialog.get_by_label("Message TTL").fill("5")

    dialog.get_by_label("Type x-queue-type").select_option("stream")

    expect(dialog.get_by_label("Message TTL")).to_be_hidden()
    expect(dialog.get_by_role("button", name="+ x-message-ttl")).to_be_hidden()
    dialog.get_by_label("x-max-age").fill("7D")
    dialog.get_by_role("button", name="Declare").click()
    expect(dialog).to_have_count(0)
    assert api.get(f"queues/%2F/{name}")["arguments"] == {"x-queue-type": "stream", "x-max-age": "7D"}
    ui.open("#/exchanges")
    ui.page.get_by_role("button", name="Declare\u2026").click()
    expect(dialog.get_by_label("x-delayed-type")).to_be_hidden()
    dialog.locator("select[name=type]").select_option("x-delayed-message")
    expect(dialog.get_by_label("x-delayed-type")).to_be_visible()


def test_keys_of_a_policy_are_added_by_a_click_and_an_operator_is_offered_fewer(ui, api, name):
    ui.open("#/policies")
    ui.page.get_by_role("button", name="Add\u2026").click()
    dialog = ui.page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("Pattern").fill("^nothing$")
    dialog.get_by_role("button", name="+ max-length", exact=True).click()
    dialog.get_by_role("button", name="+ overflow").click()
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)

    ui.open("#/operator-policies")
    ui.page.get_by_role("button", name="Add\u2026").click()
    expect(dialog.get_by_role("button", name="+ max-length", exact=True)).to_have_count(1)
    expect(dialog.get_by_role("button", name="+ dead-letter-exchange")).to_have_count(0)
    assert api.get(f"policies/%2F/{name}")["definition"] == {
        "max-length": 10000, "overflow": "reject-publish"}


def test_dialog_with_hints_can_be_used_by_everybody(ui):
    ui.open("#/queues")
    ui.page.get_by_role("button", name="Declare\u2026").click()
    ui.page.get_by_role("button", name="+ x-expires").wait_for()

    light = told(Axe().run(ui.page, options=RULES))
    ui.page.emulate_media(color_scheme="dark")

    assert (light, told(Axe().run(ui.page, options=RULES))) == ([], [])


def test_description_of_the_api_is_filtered_and_has_the_colours_of_the_page(ui):
    ui.open("#/")
    ui.page.evaluate("localStorage.setItem('gomq.theme', 'dark')")
    expect(ui.page.get_by_role("link", name="HTTP API")).to_have_attribute("href", "/docs")
    ui.page.goto(f"{ui.base}/docs")

    ui.page.get_by_label("Filter").fill("x-max-length operator-policies")
    expect(ui.page.get_by_text("0 found")).to_be_visible()
    ui.page.get_by_label("Filter").fill("purge")
    expect(ui.page.locator("article:visible code").first).to_contain_text("/contents")
    expect(ui.page.get_by_role("heading", level=2)).to_have_text(["Queues"])
    assert ui.page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_description_of_the_api_can_be_used_by_everybody_and_on_a_phone(ui):
    ui.page.goto(f"{ui.base}/docs")
    ui.page.get_by_label("Filter").fill("max-age")  # in operations, arguments and objects; axe is slow on all
    light = told(Axe().run(ui.page, options=RULES))
    ui.page.emulate_media(color_scheme="dark")
    dark = told(Axe().run(ui.page, options=RULES))
    ui.page.set_viewport_size({"width": 390, "height": 800})

    assert (light, dark) == ([], []) and ui.page.evaluate("document.documentElement.scrollWidth") <= 390
