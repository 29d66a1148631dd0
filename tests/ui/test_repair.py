"""A story: a worker rejects orders. Somebody looks why, corrects one, brings the others back."""
import json

import pika
import pytest
from playwright.sync_api import expect

from tests.support.waiting import wait_until


@pytest.fixture
def orders(api, channel, name):
    """(orders, their dead letters): three were rejected, because their currency is unknown."""
    orders, dead = f"{name} orders", f"{name} dead"
    channel.queue_declare(dead, durable=True)
    channel.queue_declare(orders, durable=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    for number in range(3):
        channel.basic_publish(
            "", orders, json.dumps({"order": number, "currency": "???"}).encode(),
            pika.BasicProperties(content_type="application/json", delivery_mode=2))
        method, _, _ = channel.basic_get(orders)
        channel.basic_reject(method.delivery_tag, requeue=False)
    wait_until(lambda: api.get(f"queues/%2F/{dead}")["messages_ready"] == 3)
    return orders, dead


def test_dead_letters_are_understood_corrected_and_brought_back(ui, api, orders):
    work, dead = orders

    ui.open(f"#/queues/%2F/{dead}/messages")
    first = ui.page.locator("details.message").first
    first.locator("summary").click()
    expect(first.get_by_role("region", name="Deaths")).to_contain_text("rejected")
    expect(first.get_by_role("region", name="Deaths")).to_contain_text(work)
    expect(first.locator("pre.body")).to_contain_text('"currency": "???"')
    first.get_by_role("button", name="Publish it again").click()
    # The whole body is asked for first: until then this is the page before, which has a routing key, too.
    expect(ui.page.get_by_role("heading", name="Publish", exact=True)).to_be_visible()
    ui.page.get_by_label("Routing key", exact=True).fill(work)
    ui.page.get_by_label("Body", exact=True).fill('{"order": 0, "currency": "EUR"}')
    ui.page.get_by_role("button", name="Publish", exact=True).click()
    expect(ui.page.get_by_text("a queue took it")).to_be_visible()
    ui.open("#/dead-letters")
    section = ui.page.locator(f"[data-dead='{dead}']")
    section.get_by_role("button", name="Replay").click()
    dialog = ui.page.get_by_role("dialog")
    dialog.get_by_label("Headers about deaths").select_option("clean")
    expect(dialog).to_contain_text(f"queue '{work}'3")
    dialog.get_by_role("button", name="Replay").click()
    expect(section.get_by_text("The queue has no ready messages.")).to_be_visible()

    back = [json.loads(one["payload"]) for one in api.get(f"queues/%2F/{work}/messages")]
    assert back == [{"order": 0, "currency": "EUR"}, *({"order": one, "currency": "???"} for one in range(3))]
