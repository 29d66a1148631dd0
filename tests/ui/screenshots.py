"""``make screenshots``: pictures of the management page, of a broker with something going on.

    python -m tests.ui.screenshots              those that docs/ui.md shows, into docs/images
    python -m tests.ui.screenshots FOLDER       those and every other page, wide and narrow, light and dark

To be looked at; nothing is compared.
"""
import contextlib
import json
import sys
import tempfile
import threading
from pathlib import Path

import pika

from tests.support.broker_process import BrokerProcess
from tests.support.page import API, UI, Driver
from tests.support.paho_client import PahoClient

ROOT = Path(__file__).parents[2]
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 400, "height": 800}
# name: (address, size, colours); ACTS says what is done on the page before the picture is taken.
SHOWN = {
    "ui-queues-narrow": ("#/queues", NARROW, "dark"),
    "ui-messages": ("#/queues/%2F/orders/messages", WIDE, "dark"),
    "ui-dead-letters": ("#/dead-letters", WIDE, "light"),
    "ui-topology": ("#/topology", WIDE, "dark"),
    "ui-log": ("#/log?text=vhost", WIDE, "dark"),
    "ui-definitions": ("#/definitions", WIDE, "light"),
    "ui-mqtt-narrow": ("#/mqtt/sessions", NARROW, "light"),
    "ui-overview": ("#/", WIDE, "light"),
}
OTHERS = (
    "/", "/queues", "/queues/%2F/orders", "/queues/%2F/orders/messages", "/publish", "/dead-letters",
    "/unacked", "/delayed", "/tasks", "/topology", "/exchanges", "/exchanges/%2F/shop", "/connections",
    "/channels", "/consumers", "/streams", "/mqtt", "/mqtt/sessions", "/mqtt/retained", "/shovels",
    "/federation", "/nodes", "/users", "/vhosts", "/policies", "/limits", "/log", "/definitions",
    "/try/amqp", "/try/mqtt",
)
CHANGED = {"queues": [
    {"name": "orders", "vhost": "/", "durable": False, "arguments": {}},
    {"name": "returns", "vhost": "/", "durable": True, "arguments": {"x-queue-type": "quorum"}},
]}


class Shop:
    """A broker with queues, dead letters, consumers, MQTT clients, a shovel and traffic."""

    def __init__(self, process):
        self.process = process
        self.api = API(f"http://127.0.0.1:{process.ports['http']}")
        self._end = threading.Event()
        self._open = contextlib.ExitStack()
        self._declare()
        self._traffic = threading.Thread(target=self._trade, daemon=True)
        self._traffic.start()

    def close(self):
        self._end.set()
        self._traffic.join()
        self._open.close()

    def _declare(self):
        api = self.api
        for name, kind in (("shop", "topic"), ("shop.dead", "fanout")):
            api.put(f"exchanges/%2F/{name}", {"type": kind, "durable": True})
        api.put("exchanges/%2F/reminders", {
            "type": "x-delayed-message", "durable": True, "arguments": {"x-delayed-type": "topic"}})
        for name, limit in (
            ("orders", {}), ("invoices", {"x-max-length": 100}), ("parcels", {}),
            ("mail", {"x-message-ttl": 5_000}), ("audit", {}),
        ):
            api.put(f"queues/%2F/{name}", {"durable": True, "arguments": {
                "x-dead-letter-exchange": "shop.dead", **limit}})
            api.post(f"bindings/%2F/e/shop/q/{name}", {"routing_key": f"{name}.#"})
        api.put("queues/%2F/dead", {"durable": True})
        api.put("queues/%2F/history", {"durable": True, "arguments": {"x-queue-type": "stream"}})
        api.post("bindings/%2F/e/shop/q/history", {"routing_key": "#"})
        api.post("bindings/%2F/e/shop.dead/q/dead")
        api.put("queues/%2F/mail/pause")
        api.put("policies/%2F/short", {
            "pattern": "^audit$", "definition": {"max-length": 10000}, "apply-to": "queues"})
        api.put("users/anna", {"password": "anna", "tags": "monitoring"})
        api.put("parameters/shovel/%2F/archive", {"value": {
            "src-uri": "amqp://", "src-queue": "audit", "dest-uri": "amqp://", "dest-queue": "archive"}})
        api.put("parameters/federation-upstream/%2F/london", {"value": {"uri": "amqp://127.0.0.1:1"}})
        for name in ("thermometer-1", "thermometer-2", "door"):
            client = self._open.enter_context(contextlib.closing(
                PahoClient(None, name, port=self.process.ports["mqtt"])))
            client.subscribe(f"house/{name}/set")
            client.publish(f"house/{name}/state", b'{"on": true}', retain=True)

    def _connection(self, name):
        parameters = pika.URLParameters(self.process.amqp_url)
        parameters.client_properties = {"connection_name": name}
        return self._open.enter_context(contextlib.closing(pika.BlockingConnection(parameters)))

    def _trade(self):
        shop, worker = self._connection("shop").channel(), self._connection("worker").channel()
        worker.basic_qos(prefetch_count=10)
        worker.basic_consume("orders", lambda *_: None, consumer_tag="packing")
        number = 0
        while not self._end.is_set():
            for queue in ("orders", "invoices", "parcels", "mail", "audit"):
                shop.basic_publish("shop", f"{queue}.new", json.dumps(
                    {"order": number, "lines": [{"sku": "A-17", "count": 2}], "to": "Z\u00fcrich"},
                    ensure_ascii=False).encode(),
                    pika.BasicProperties(
                        content_type="application/json", headers={"shard": number % 4}, delivery_mode=2))
            if number < 40:
                shop.basic_publish("reminders", "mail.late", b"call back", pika.BasicProperties(
                    headers={"x-delay": 600_000 + 1000 * number}))
            if number % 4 == 0 and (got := worker.basic_get("parcels")[0]) is not None:
                worker.basic_reject(got.delivery_tag, requeue=False)
            number += 1
            self._end.wait(0.05)


def _compare(page):
    page.get_by_label("Definitions as JSON").fill(json.dumps(CHANGED, indent=2))
    page.get_by_role("button", name="What would change?").click()
    page.get_by_role("table", name="What would change").wait_for()


def _watch(page):
    page.get_by_text("1 min", exact=True).click()
    page.wait_for_timeout(60_000)  # for the charts to have something to show


ACTS = {"ui-definitions": _compare, "ui-overview": _watch}


def take(driver, base, address, size, colours, path, act=None):
    """One picture, once the page has shown what it has and its second look at the broker is over."""
    ui = UI(driver, base, viewport=size, color_scheme=colours)
    try:
        ui.open(address)
        if act is not None:
            act(ui.page)
        ui.page.wait_for_timeout(6000)
        ui.page.screenshot(path=str(path))
        print(path, path.stat().st_size)
    finally:
        ui.close()


def main(arguments):
    folder = Path(arguments[0]) if arguments else ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, BrokerProcess(
        Path(data) / "data", http_port=0, mqtt_port=0
    ) as process, contextlib.closing(Shop(process)) as shop, contextlib.closing(Driver()) as driver:
        driver.show()
        for name, (address, size, colours) in SHOWN.items():
            take(driver, shop.api.base, address, size, colours, folder / f"{name}.png", ACTS.get(name))
        for path in OTHERS if arguments else ():
            for size, colours in ((WIDE, "light"), (NARROW, "dark")):
                name = f"page{path.replace('/', '-').replace('%2F', '')}-{colours}.png"
                with contextlib.suppress(AssertionError):  # a page of another time
                    take(driver, shop.api.base, f"#{path}", size, colours, folder / name)


if __name__ == "__main__":
    main(sys.argv[1:])
