"""Moving, copying and replaying: counted first, then done in parts."""
import json

import pika
import pytest
from playwright.sync_api import expect

from tests.support.waiting import wait_until


@pytest.fixture
def queues(channel, fill, name):
    """(from, to): queues; the first has 1200 messages, every third with a header."""
    source, target = f"{name} from", f"{name} to"
    for queue in (source, target):
        channel.queue_declare(queue, durable=True)
    fill(source, (
        (b"%d" % number, pika.BasicProperties(headers={"third": number % 3 == 0})) for number in range(1200)))
    return source, target


def count(api, queue):
    """The ready messages of a queue."""
    return api.get(f"queues/%2F/{queue}")["messages_ready"]


def try_out(ui, source, target, kind="move", **fields):
    """Open the page of moves, fill it and count first."""
    ui.open(f"#/queues/%2F/{source.replace(' ', '%20')}/move?kind={kind}")
    ui.page.get_by_label("To the queue").fill(target)
    for label, value in fields.items():
        ui.page.get_by_label(label.replace("_", " ")).fill(value)
    ui.page.get_by_role("button", name="Count first").click()


def test_messages_are_moved_in_parts_once_they_were_counted(ui, api, queues):
    source, target = queues

    try_out(ui, source, target)
    expect(ui.page.locator("[data-outcome=dry]")).to_contain_text("1,200")
    assert count(api, source) == 1200
    asked = len(ui.requests)
    ui.page.get_by_role("button", name="Move 1,200 messages").click()

    expect(ui.page.locator("[data-outcome=done]")).to_contain_text(f"to {target}1,200")
    assert sum(one.endswith("/move") for one in ui.requests[asked:]) == 3
    assert (count(api, source), count(api, target)) == (0, 1200)
    first = api.get(f"queues/%2F/{target}/messages?count=1")
    assert first[0]["payload"] == "0"


def test_only_what_fits_is_copied_and_the_originals_stay(ui, api, queues):
    source, target = queues

    try_out(ui, source, target, "copy", Only_with_these_headers="third = true", At_most="300")
    ui.page.get_by_role("button", name="Copy 300 messages").click()

    expect(ui.page.locator("[data-outcome=done]")).to_contain_text("300")
    assert (count(api, source), count(api, target)) == (1200, 300)


def test_what_the_target_refuses_stays_and_does_not_hold_up_the_rest(ui, api, channel, fill, name):
    source, target = f"{name} mixed", f"{name} small"
    channel.queue_declare(source, durable=True)
    few = {"x-max-length": 100, "x-overflow": "reject-publish"}
    channel.queue_declare(target, durable=True, arguments=few)
    fill(source, ((b"%d" % number, None) for number in range(200)))

    try_out(ui, source, target)
    ui.page.get_by_role("button", name="Move 200 messages").click()

    expect(ui.page.locator("[data-outcome=done]")).to_contain_text("stay: refused by the target100")
    assert (count(api, source), count(api, target)) == (100, 100)


def test_a_queue_that_is_not_there_is_told(ui, queues):
    ui.expect_complaint("404")
    try_out(ui, queues[0], "not there")

    expect(ui.page.get_by_role("alert").filter(has_text="not there")).to_be_visible()


@pytest.fixture
def dead(api, channel, name):
    """(work, dead): two messages were rejected in the first, three expired elsewhere; now in the second."""
    work, short, dead = f"{name} work", f"{name} short", f"{name} dead"
    channel.queue_declare(dead, durable=True)
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.queue_declare(work, durable=True, arguments=to_dead)
    channel.queue_declare(short, durable=True, arguments={**to_dead, "x-message-ttl": 1})
    for number in range(2):
        channel.basic_publish("", work, json.dumps({"n": number}).encode())
        method, _, _ = channel.basic_get(work)
        channel.basic_reject(method.delivery_tag, requeue=False)
    for _ in range(3):
        channel.basic_publish("", short, b"late")
    wait_until(lambda: count(api, dead) == 5)
    return work, dead


def test_dead_letters_are_grouped_by_why_and_where(ui, dead):
    work, queue = dead

    ui.open("#/dead-letters")
    section = ui.page.locator(f"[data-dead='{queue}']")
    rows = section.locator("tbody tr")

    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("expired")
    expect(rows.nth(1)).to_contain_text("rejected")
    expect(rows.nth(1)).to_contain_text(work)
    rows.nth(1).get_by_role("button", name="Show").click()
    expect(section.locator("details.message")).to_have_count(2)
    expect(section.get_by_role("region", name="Deaths")).to_contain_text("rejected")


def test_one_group_goes_back_after_a_look_at_what_changes(ui, api, dead):
    work, queue = dead

    ui.open("#/dead-letters")
    section = ui.page.locator(f"[data-dead='{queue}']")
    section.locator("tbody tr").nth(1).get_by_role("button", name="Replay").click()
    dialog = ui.page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"queue '{work}'2")
    expect(dialog.locator(".change tr").first.locator("del")).to_have_text(queue)
    expect(dialog.locator("tr", has_text="x-death").locator("del")).to_have_count(0)
    dialog.get_by_label("Headers about deaths").select_option("clean")
    expect(dialog.locator("tr", has_text="x-death").locator("del")).to_have_count(1)
    dialog.get_by_role("button", name="Replay").click()

    expect(section.locator("tbody tr")).to_have_count(1)
    back = api.get(f"queues/%2F/{work}/messages")
    assert [json.loads(message["payload"]) for message in back] == [{"n": 0}, {"n": 1}]
    assert not back[0]["properties"].get("headers")
    assert count(api, queue) == 3


def test_dead_tasks_go_back_to_their_queue_with_all_attempts_left(ui, api, channel, name):
    """Without a dead letter exchange: the names of the queues say that they belong together."""
    queue, dead = name, f"{name}.dead"
    for each in (queue, dead):
        channel.queue_declare(each, durable=True)
    for number in range(2):
        channel.basic_publish("", dead, b"{}", pika.BasicProperties(headers={
            "x-task-queue": queue, "x-task-attempt": 3 + number, "x-task-error": "OSError",
            "x-task-reason": "no route"}))
    wait_until(lambda: count(api, dead) == 2)

    ui.open("#/dead-letters")
    section = ui.page.locator(f"[data-dead='{dead}']")
    row = section.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("OSError")
    expect(row).to_contain_text(queue)
    row.get_by_role("button", name="Replay").click()
    dialog = ui.page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"queue '{queue}'2")
    expect(dialog.locator("tr", has_text="x-task-attempt").locator("del")).to_have_text("3")
    dialog.get_by_role("button", name="Replay").click()

    expect(section).to_contain_text("The queue has no ready messages.")
    assert [one["properties"].get("headers") for one in api.get(f"queues/%2F/{queue}/messages")] == [{}, {}]
