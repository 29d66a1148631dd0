"""Searching the ready messages of a queue: by the broker where it can judge."""
import json

import pika
import pytest
from playwright.sync_api import expect


@pytest.fixture
def queue(channel, fill, name):
    """A queue with orders 0 to 299; each fifth is bad."""
    channel.queue_declare(name)
    fill(name, (
        (json.dumps(
            {"to": {"city": "Graz" if number == 123 else "Wien"}, "lines": [{"n": number}]}).encode(),
         pika.BasicProperties(headers={"kind": "bad" if number % 5 == 0 else "good"}))
        for number in range(300)))
    return name


@pytest.mark.parametrize(("label", "text", "positions"), [
    ("Body contains", "graz", ["123"]), ("Path in the body", "$.to.city = Graz", ["123"]),
    ("Path in the body", "$.lines[0].n == 7", ["7"]),
])
def test_the_broker_finds_what_is_searched_for(ui, queue, label, text, positions):
    ui.open(f"#/queues/%2F/{queue}/messages")
    ui.page.get_by_label(label).fill(text)
    asked = len(ui.requests)
    ui.page.get_by_role("button", name="Show messages").click()

    expect(ui.page.get_by_text("1 message found among 300")).to_be_visible()
    expect(ui.page.locator("details.message .at")).to_have_text(positions)
    assert [one.rpartition("/")[2] for one in ui.requests[asked:] if "/api/queues/" in one] == ["search"]


def test_a_search_goes_on_from_where_it_stopped(ui, queue, fill):
    fill(queue, (
        (b"%d" % number, pika.BasicProperties(headers={"kind": "bad"})) for number in range(300, 700)))

    ui.open(f"#/queues/%2F/{queue}/messages?header=kind%20%3D%20bad")
    expect(ui.page.get_by_text("100 messages found among 340; more messages can be searched")).to_be_visible()
    for _ in range(4):
        ui.page.get_by_role("button", name="Go on").click()
        expect(ui.page.get_by_text("Looking")).to_have_count(0)

    expect(ui.page.get_by_text("460 messages found among 700", exact=True)).to_be_visible()
    expect(ui.page.locator("details.message")).to_have_count(460)
