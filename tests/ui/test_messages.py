"""Looking at messages: the queue stays as it is, bodies are decoded, texts of users are only ever texts."""
import base64
import gzip
import json
import re

import pika
from playwright.sync_api import expect

from tests.support.waiting import wait_until

HOSTILE = "<script>alert(1)</script>\"'\u202e\u0000&amp;"


def persistent(**properties):
    """Properties of a message."""
    return pika.BasicProperties(delivery_mode=2, **properties)


def messages(ui):
    """The messages that are listed."""
    return ui.page.locator("details.message")


def body_of(message):
    """The text of the body of an open message."""
    return message.locator("pre.body")


def open_messages(ui, name, query=""):
    """Show the messages of this queue."""
    ui.open(f"#/queues/%2F/{name}/messages{query}")


def test_messages_are_shown_decoded_and_stay_as_they_are(ui, api, channel, name):
    channel.queue_declare(name, durable=True)
    order = {"id": 12345678901234567890, "lines": [1]}
    for body, properties in (
        (json.dumps(order).encode(), persistent(content_type="application/json", headers={"kind": "order"})),
        (gzip.compress(b"packed text"), persistent(content_encoding="gzip")),
        (b"\x81\xa1a\xc3", persistent()),
        (b"\xa1aa\xf5", persistent(content_type="application/cbor")), (b"\x00\xff", persistent()),
    ):
        channel.basic_publish("", name, body, properties)

    open_messages(ui, name)
    expect(messages(ui)).to_have_count(5)
    ui.page.get_by_role("button", name="Open all").click()

    expect(body_of(messages(ui).nth(0))).to_contain_text('"id": 12345678901234567890')
    expect(messages(ui).nth(0).get_by_role("row", name="kind order")).to_be_visible()
    expect(body_of(messages(ui).nth(1))).to_have_text("packed text")
    expect(body_of(messages(ui).nth(2))).to_contain_text('"a": true')
    expect(messages(ui).nth(2).get_by_role("status")).to_have_text("MessagePack")
    expect(messages(ui).nth(3).get_by_role("status")).to_have_text("CBOR")
    expect(body_of(messages(ui).nth(4))).to_contain_text("00 ff")
    seen = api.get(f"queues/%2F/{name}/messages?count=5")
    assert [(one["redelivered"], one["delivery_count"]) for one in seen] == [(False, 0)] * 5


def test_the_form_of_a_body_can_be_chosen(ui, channel, name):
    channel.queue_declare(name, durable=True)
    channel.basic_publish("", name, b'{"a":1}', persistent())

    open_messages(ui, name)
    messages(ui).locator("summary").click()
    choice = messages(ui).get_by_label("Format of the body")

    for form, text in (
        ("text", '{"a":1}'), ("base64", base64.b64encode(b'{"a":1}').decode()), ("json", '{\n  "a": 1\n}'),
    ):
        choice.select_option(form)
        expect(body_of(messages(ui))).to_have_text(text, use_inner_text=True)
    choice.select_option("cbor")
    expect(messages(ui).get_by_role("status")).to_have_text("ends within a value, at byte 1")


def test_a_large_body_is_cut_until_all_of_it_is_asked_for(ui, channel, name):
    channel.queue_declare(name, durable=True)
    channel.basic_publish("", name, b"a" * 70_000 + b"the end", persistent())

    open_messages(ui, name)
    messages(ui).locator("summary").click()
    expect(messages(ui).get_by_role("status")).to_contain_text("the first 65,536 of 70,007 bytes")
    messages(ui).get_by_role("button", name="Load the whole body").click()

    expect(body_of(messages(ui))).to_contain_text("the end")


def test_a_path_finds_messages_in_packed_and_binary_bodies_too(ui, channel, name):
    channel.queue_declare(name, durable=True)
    for total in (5, 500):
        channel.basic_publish("", name, gzip.compress(json.dumps({"total": total}).encode()), persistent())
    channel.basic_publish("", name, b"\x81\xa5total\xcd\x03\xe8", persistent())  # 1000, in MessagePack

    open_messages(ui, name)
    ui.page.get_by_label("Path in the body").fill("$.total > 100")
    ui.page.get_by_role("button", name="Show messages").click()

    expect(ui.page.get_by_text("2 messages found among 3")).to_be_visible()
    expect(messages(ui).locator(".at")).to_have_text(["1", "2"])
    ui.page.get_by_label("Path in the body").fill("total >")
    ui.page.get_by_role("button", name="Show messages").click()
    expect(ui.page.get_by_role("alert").filter(has_text="a path begins with $")).to_be_visible()


def test_the_address_holds_what_is_looked_for(ui, channel, name):
    channel.queue_declare(name, durable=True)
    for number in range(3):
        channel.basic_publish("", name, json.dumps({"n": [number]}).encode(), persistent())

    open_messages(ui, name, "?path=%24..n%5B0%5D%20%3E%3D%202")

    expect(messages(ui)).to_have_count(1)
    expect(ui.page.get_by_label("Path in the body")).to_have_value("$..n[0] >= 2")


def test_messages_are_exported_as_lines_of_json(ui, channel, name):
    channel.queue_declare(name, durable=True)
    channel.basic_publish("", name, "h\u00e9".encode(), persistent(headers={"n": 1}))
    channel.basic_publish("", name, b"\xff\x00", persistent())

    open_messages(ui, name)
    with ui.page.expect_download() as download:
        ui.page.get_by_role("button", name="Export NDJSON").click()

    lines = [json.loads(line) for line in open(download.value.path(), encoding="utf-8")]
    assert [(line["payload"], line["payload_encoding"]) for line in lines] == [
        ("h\u00e9", "string"), (base64.b64encode(b"\xff\x00").decode(), "base64")]
    assert lines[0]["properties"]["headers"] == {"n": 1}
    assert lines[0]["routing_key"] == name


def test_hostile_texts_are_only_texts(ui, api, channel):
    queue = f"peek {HOSTILE.replace(chr(0), '')}"
    channel.queue_declare(queue, durable=True)
    channel.basic_publish("", queue, HOSTILE.encode(), persistent(
        headers={HOSTILE: HOSTILE, "deep": {"<b>": ["<i>"]}}, message_id="m" * 255, content_type=HOSTILE))

    ui.open("#/queues")
    address = ui.page.evaluate("name => '#/queues/%2F/' + encodeURIComponent(name) + '/messages'", queue)
    ui.open(address)
    messages(ui).locator("summary").click()

    expect(messages(ui).get_by_role("row").first).to_contain_text("<script>")
    messages(ui).get_by_label("Format of the body").select_option("text")
    expect(body_of(messages(ui))).to_contain_text("<script>alert(1)</script>\"'\u27e8U+202E\u27e9\u2400&amp;")
    assert ui.page.locator("#main script, #main b, #main i").count() == 0


def test_purging_wants_the_name_of_the_queue(ui, api, channel, name):
    channel.queue_declare(name, durable=True)
    for _ in range(3):
        channel.basic_publish("", name, b"x", persistent())

    open_messages(ui, name)
    ui.page.get_by_role("button", name="Purge").click()
    dialog = ui.page.get_by_role("dialog")
    dialog.get_by_label("Type").fill("another")
    dialog.get_by_role("button", name="Purge").click()
    expect(dialog.get_by_role("alert")).to_have_text("The text differs from the one asked for.")
    dialog.get_by_label("Number of messages").fill("2")
    dialog.get_by_label("Type").fill(name)
    dialog.get_by_role("button", name="Purge").click()

    expect(messages(ui)).to_have_count(1)
    assert len(api.get(f"queues/%2F/{name}/messages")) == 1


def test_the_page_of_a_queue_purges_it_too(ui, api, channel, name):
    channel.queue_declare(name, durable=True)
    channel.basic_publish("", name, b"x", persistent())
    wait_until(lambda: api.get(f"queues/%2F/{name}")["messages_ready"] == 1)

    ui.open(f"#/queues/%2F/{name}")
    ui.page.get_by_role("button", name="Purge").click()
    dialog = ui.page.get_by_role("dialog")
    dialog.get_by_label("Type").fill(name)
    dialog.get_by_role("button", name="Purge").click()

    wait_until(lambda: api.get(f"queues/%2F/{name}/messages") == [])


def test_a_message_is_published_again_from_where_it_was_looked_at(ui, api, channel, name):
    channel.queue_declare(name, durable=True)
    body = b"\xff\x01" * 50_000  # more than the list shows of it
    channel.basic_publish("", name, body, persistent(headers={"n": 1}, message_id="first"))

    open_messages(ui, name)
    messages(ui).locator("summary").click()
    messages(ui).get_by_role("button", name="Publish it again").click()
    ui.page.get_by_role("button", name="Publish", exact=True).click()

    expect(ui.page.get_by_text("a queue took it")).to_be_visible()
    first, second = api.get(f"queues/%2F/{name}/messages")
    for message in (first, second):
        message.pop("position")
        message.pop("timestamp")
    assert first == second


def test_messages_are_a_tab_of_their_queue(ui, channel, name):
    channel.queue_declare(name, durable=True)
    channel.basic_publish("", name, b'{"n": 1}', persistent())

    ui.open(f"#/queues/%2F/{name}?tab=messages&path=%24.n%20%3D%201")
    expect(ui.page.get_by_text("1 message found among 1")).to_be_visible()
    ui.page.get_by_role("button", name="Show messages").click()

    expect(messages(ui)).to_have_count(1)
    expect(ui.page).to_have_url(re.compile("tab=messages"))
