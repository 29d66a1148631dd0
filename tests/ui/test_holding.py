"""What is held somewhere: unacknowledged by consumers, delayed by exchanges, in streams; and tasks."""
import json
import re

import pika
from playwright.sync_api import expect

from tests.support.waiting import wait_until

STREAM = {"x-queue-type": "stream"}


def test_unacknowledged_messages_are_given_back_one_by_one(ui, api, channel, name):
    channel.queue_declare(name)
    for number in range(3):
        channel.basic_publish("", name, b"%d" % number)
    channel.basic_qos(prefetch_count=2)
    channel.basic_consume(name, lambda *_: None, consumer_tag="slow worker")
    wait_until(lambda: api.get(f"queues/%2F/{name}")["messages_unacknowledged"] == 2)

    ui.open("#/unacked")
    row = ui.page.get_by_role("row").filter(has_text=name)
    expect(row).to_contain_text("slow worker")
    row.get_by_role("link", name=name).click()
    held = ui.page.locator("tbody tr")
    expect(held).to_have_count(2)
    held.filter(has=ui.page.get_by_role("cell", name="1", exact=True)).get_by_role("checkbox").check()
    ui.page.get_by_role("button", name="Requeue").click()
    ui.page.get_by_role("dialog").get_by_role("button", name="Requeue").click()

    # The next consumer is the same one: it gets the first one again, under another tag.
    expect(held.filter(has=ui.page.get_by_role("cell", name="1", exact=True))).to_have_count(0)
    expect(held.filter(has=ui.page.get_by_role("cell", name="3", exact=True))).to_have_count(1)


def test_delayed_messages_stand_in_the_order_of_their_time(ui, channel, name):
    channel.exchange_declare(name, "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    for minutes in (90, 30):
        channel.basic_publish(name, "key", b"in %d minutes" % minutes, pika.BasicProperties(
            headers={"x-delay": minutes * 60_000}))

    ui.open("#/delayed")
    row = ui.page.get_by_role("row").filter(has_text=name)
    expect(row).to_contain_text(re.compile(r"in (30 min|29 min \d+ s)"))
    row.get_by_role("link", name=name).click()

    expect(ui.page.locator("details.message .preview")).to_have_text(["in 30 minutes", "in 90 minutes"])
    expect(ui.page.locator(".due").nth(1)).to_contain_text(re.compile(r"in 1 h (30|29) min"))


def test_schedules_are_listed_and_deleted(ui, api, channel, name):
    channel.exchange_declare(name, "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    for one, fields in (
        ("nightly", {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}), ("often", {"every": 3_600_000})
    ):
        channel.basic_publish(name, "key", b"body", pika.BasicProperties(
            headers={"x-schedule": {"name": f"{one} {name}", **fields}}))

    ui.open("#/schedules")
    row = ui.page.get_by_role("row").filter(has_text=f"nightly {name}")
    expect(row).to_contain_text("0 3 * * * Europe/Berlin")
    expect(ui.page.get_by_role("row").filter(has_text=f"often {name}")).to_contain_text("every 1 h")
    row.get_by_role("checkbox").check()
    ui.page.get_by_role("button", name="Delete").click()
    ui.page.get_by_role("dialog").get_by_role("button", name="Delete").click()

    expect(row).to_have_count(0)
    assert [one["name"] for one in api.get("schedules/%2F") if one["exchange"] == name] == [f"often {name}"]


def test_a_stream_is_scrubbed_by_offset_and_time(ui, channel, name):
    channel.queue_declare(name, durable=True, arguments=STREAM)
    for number in range(120):
        channel.basic_publish("", name, b"message %d" % number)

    ui.open(f"#/streams/%2F/{name}/timeline")
    at = ui.page.locator("details.message .at")
    expect(at.first).to_have_text("70")
    expect(at).to_have_count(50)
    scrub = ui.page.get_by_role("slider", name="Offset")
    scrub.evaluate("node => { node.value = '10'; node.dispatchEvent(new Event('input', {bubbles: true})) }")
    expect(at.first).to_have_text("10")
    ui.page.get_by_role("button", name="Later").click()
    expect(at.first).to_have_text("60")
    ui.page.get_by_label("From time").fill("2001-01-01T00:00:00")
    ui.page.get_by_role("button", name="Go to this time").click()
    expect(at.first).to_have_text("0")
    expect(ui.page).to_have_url(re.compile(r"\?offset=0$"))


def test_who_reads_a_stream_is_shown_and_a_kept_position_forgotten(ui, api, channel, name):
    channel.queue_declare(name, durable=True, arguments=STREAM)
    for number in range(5):
        channel.basic_publish("", name, b"%d" % number)
    channel.basic_qos(prefetch_count=2)
    tags = []
    channel.basic_consume(
        name, lambda _, method, *__: tags.append(method.delivery_tag), consumer_tag="reader",
        arguments={"x-stream-offset": "first", "x-stream-automatic-offset-tracking": True})
    wait_until(lambda: channel.connection.process_data_events(0.05) or len(tags) == 2)
    channel.basic_ack(tags[-1], multiple=True)
    wait_until(
        lambda: channel.connection.process_data_events(0.05) or api.get(f"streams/%2F/{name}")["offsets"])
    channel.basic_cancel("reader")

    ui.open(f"#/streams/%2F/{name}/timeline?offset=0")
    row = ui.page.get_by_role("row").filter(has_text="stored offset")
    expect(row).to_contain_text("reader")
    row.get_by_role("button", name="Forget").click()

    expect(row).to_have_count(0)
    assert api.get(f"streams/%2F/{name}")["offsets"] == []


def test_tasks_of_both_protocols_of_celery_are_told_from_other_messages(ui, channel, name):
    channel.queue_declare(name)
    channel.basic_publish("", name, b"[[1], {}, {}]", pika.BasicProperties(headers={
        "task": "shop.bill", "id": "id-2", "retries": 1, "eta": "2099-01-01T00:00:00+00:00",
        "argsrepr": "(1,)", "kwargsrepr": "{}"}))
    old = {"task": "shop.<b>mail", "id": "id-1", "args": [2]}
    channel.basic_publish("", name, json.dumps(old).encode())
    channel.basic_publish("", name, b"something else")

    ui.open(f"#/tasks?queue={name}")

    rows = ui.page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("id-2")
    expect(rows.nth(0)).to_contain_text(re.compile(r"in \d+ d"))
    expect(rows.nth(1)).to_contain_text("shop.<b>mail")
    expect(ui.page.get_by_text("2 tasks among the 3 oldest messages")).to_be_visible()


def test_tasks_of_the_task_queue_are_told_with_why_they_were_given_up(ui, channel, name):
    channel.queue_declare(name)
    body = {"uuid": "id-3", "name": "resize", "args": [{"type": "string", "value": "cat.png"}]}
    for attempt, headers in (
        (1, {"x-task-expires": 2**62}),
        (3, {"x-task-error": "OSError", "x-task-reason": "no route", "x-task-queue": name}),
    ):
        channel.basic_publish(
            "", name, json.dumps({**body, "uuid": f"id-{attempt}"}).encode(),
            pika.BasicProperties(headers={"x-task-attempt": attempt, **headers}))

    ui.open(f"#/tasks?queue={name}")

    rows = ui.page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("id-1")
    expect(rows.nth(1)).to_contain_text("resize")
    expect(rows.nth(1)).to_contain_text('["cat.png"]')
    expect(rows.nth(1)).to_contain_text("OSError: no route")
