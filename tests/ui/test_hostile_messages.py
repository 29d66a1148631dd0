"""Names that want to be HTML, or not to be seen, in the pages about messages: only ever texts."""
from urllib.parse import quote

import pika
import pytest
from playwright.sync_api import expect

from tests.support.waiting import wait_until

HOSTILE = "<script>alert(1)</script>\"'\u202e\t\u0001&amp;{{7*7}}\u00e9" + "x" * 60


@pytest.fixture(scope="module")
def estate(managed):
    """A vhost's worth of things of hostile names: (queue, stream, delayed exchange). All have messages."""
    queue, stream, later = (f"{what}{HOSTILE}" for what in ("q", "s", "d"))
    connection = pika.BlockingConnection(pika.URLParameters(managed.amqp_url))
    channel = connection.channel()
    dead = f"dead{HOSTILE}"
    channel.queue_declare(dead)
    channel.queue_declare(queue, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
    channel.exchange_declare(later, "x-delayed-message", arguments={"x-delayed-type": "topic"})
    channel.queue_bind(queue, later, f"key{HOSTILE}")
    channel.confirm_delivery()
    headers = {HOSTILE: HOSTILE, "task": HOSTILE, "id": HOSTILE}
    for target in (queue, queue, queue, stream):
        channel.basic_publish("", target, HOSTILE.encode(), pika.BasicProperties(
            headers=headers, content_type=HOSTILE, type=HOSTILE))
    channel.basic_publish(later, f"key{HOSTILE}", b"x", pika.BasicProperties(
        headers={**headers, "x-delay": 3_600_000}))
    channel.basic_publish(later, f"key{HOSTILE}", b"x", pika.BasicProperties(
        headers={"x-schedule": {"name": HOSTILE, "every": 3_600_000}}))
    method, _, _ = wait_until(lambda: (got := channel.basic_get(queue))[0] and got)
    channel.basic_reject(method.delivery_tag, requeue=False)
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(queue, lambda *_: None, consumer_tag=f"tag{HOSTILE}")
    yield queue, stream, later, dead
    connection.close()


def test_hostile_names_are_texts_on_all_pages_about_messages(ui, estate):
    """One walk through the pages: whatever the browser ran or refused to run would end the test."""
    queue, stream, later, dead = (quote(one, safe="") for one in estate)
    addresses = (
        f"queues/%2F/{queue}/messages", f"queues/%2F/{queue}/move", f"dead-letters/%2F/{dead}",
        "dead-letters", "unacked", f"unacked/%2F/{queue}", "delayed", "schedules",
        f"delayed/%2F/{later}", f"streams/%2F/{stream}/timeline",
        f"tasks?queue={queue}", f"topology?exchange={later}&key=key{quote(HOSTILE, safe='')}&tried=1",
    )

    for address in addresses:
        ui.open(f"#/{address}")
        for summary in ui.page.locator("details.message:not([open]) > summary").all():
            summary.click()
        for button in ui.page.get_by_role("button", name="Show", exact=True).all()[:1]:
            button.click()
        expect(ui.page.locator("#main")).to_contain_text("<script>alert(1)</script>")
        text = ui.page.locator("#main").inner_text()
        assert "\u202e" not in text and "\u0001" not in text, address
        assert ui.page.locator("#main script").count() == 0, address
