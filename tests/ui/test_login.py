"""Logging in and out, and where one is afterwards."""
from playwright.sync_api import expect


def test_whoever_logs_in_is_shown_the_page_of_the_address(ui, api, name):
    api.put(f"queues/%2F/{name}")

    ui.page.goto(f"{ui.base}/#/queues?name={name}")
    ui.page.get_by_label("Name").fill("guest")
    ui.page.get_by_label("Password").fill("guest")
    ui.page.get_by_role("button", name="Log in").click()

    expect(ui.page.get_by_role("heading", level=1)).to_have_text("Queues")
    expect(ui.page.get_by_role("link", name=name)).to_be_visible()
    expect(ui.page).to_have_title("Queues - gomq-py")


def test_a_wrong_password_is_told(ui):
    ui.expect_complaint("401")
    ui.page.goto(ui.base)
    ui.page.get_by_label("Name").fill("guest")
    ui.page.get_by_label("Password").fill("wrong")
    ui.page.get_by_role("button", name="Log in").click()

    expect(ui.page.get_by_role("alert")).to_contain_text("Wrong name or password.")


def test_who_has_logged_out_is_out_after_a_reload_too(ui):
    ui.open("#/queues")
    ui.page.get_by_text("guest", exact=True).click()
    ui.page.get_by_role("button", name="Log out").click()
    expect(ui.page.get_by_role("heading", name="Log in")).to_be_visible()

    ui.page.reload()

    expect(ui.page.get_by_role("heading", name="Log in")).to_be_visible()
    assert not ui.context.cookies()
