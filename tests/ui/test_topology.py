"""The picture of what leads where, and the trial of a routing key."""
import pytest
from playwright.sync_api import expect


@pytest.fixture
def estate(channel, name):
    """An exchange that leads to another, which leads to a queue that somebody reads; and an alternate one."""
    whats = ("first", "second", "spare", "queue", "lost")
    first, second, spare, queue, lost = (f"{name[:12]} {what}" for what in whats)
    channel.exchange_declare(spare, "fanout")
    channel.exchange_declare(first, "topic", arguments={"alternate-exchange": spare})
    channel.exchange_declare(second, "headers")
    for one in (queue, lost):
        channel.queue_declare(one)
    channel.exchange_bind(second, first, "orders.#")
    channel.queue_bind(queue, second, arguments={"x-match": "all", "kind": "bad"})
    channel.queue_bind(lost, spare)
    channel.basic_consume(queue, lambda *_: None, consumer_tag=f"{name[:12]} reader")
    return first, second, spare, queue, lost


def box(ui, text):
    """The box of the drawing with this text."""
    return ui.page.locator(".graph g").filter(has_text=text)


def attempt(ui, exchange, key, headers=""):
    """Try where a message would go."""
    ui.page.get_by_label("Exchange", exact=True).fill(exchange)
    ui.page.get_by_label("Routing key", exact=True).fill(key)
    ui.page.get_by_label("Headers, a line each").fill(headers)
    ui.page.get_by_role("button", name="Try it").click()


def test_what_leads_where_is_drawn(ui, estate):
    first, second, _, queue, _ = estate

    ui.open("#/topology")
    for text in (first, second, queue, "reader"):
        expect(box(ui, text).first).to_be_visible()
    ui.page.get_by_role("searchbox", name="Filter").fill(second)

    expect(ui.page.locator(".graph g")).to_have_count(4)
    expect(ui.page.get_by_role("link", name=f"queue {queue}")).to_be_visible()


def test_the_way_of_a_message_is_lit_and_explained(ui, estate):
    first, second, _, queue, lost = estate

    ui.open("#/topology")
    attempt(ui, first, "orders.new", "kind = bad")
    outcome = ui.page.locator("[data-outcome=route]")
    expect(outcome.get_by_role("link", name=queue)).to_be_visible()
    expect(outcome).to_contain_text(f"{first} \u2192 {second}")
    expect(outcome).to_contain_text("x-match: all")
    for text in (first, second, queue):
        expect(ui.page.locator(".graph g.hit").filter(has_text=text)).to_have_count(1)
    expect(ui.page.locator(".graph g.hit").filter(has_text=lost)).to_have_count(0)
    expect(ui.page.locator(".graph path.hit")).to_have_count(2)
    ui.page.reload()
    ui.wait_shown()

    expect(outcome.get_by_role("link", name=queue)).to_be_visible()


def test_alternates_and_the_unroutable_are_told(ui, estate):
    first, _, _, queue, lost = estate

    ui.open("#/topology")
    attempt(ui, first, "elsewhere")
    outcome = ui.page.locator("[data-outcome=route]")
    expect(outcome.get_by_role("link", name=lost)).to_be_visible()
    outcome.get_by_text("steps").click()
    expect(outcome).to_contain_text("its alternate exchange is asked")
    attempt(ui, "", queue)
    expect(ui.page.locator(".graph g.hit").filter(has_text="(default)")).to_have_count(1)
    attempt(ui, "", "nowhere at all")

    expect(outcome).to_contain_text("unroutable")
