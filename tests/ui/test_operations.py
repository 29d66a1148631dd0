"""Pages for whoever runs a broker: the log, shovels, federation, MQTT, definitions."""
import json
from contextlib import closing

import pytest
import requests
from playwright.sync_api import expect

from tests.support.broker_process import BrokerProcess
from tests.support.page import API
from tests.support.paho_client import PahoClient
from tests.support.waiting import in_time, wait_until

HOSTILE = "<script>alert(1)</script>\"'\u202e"


# the log

def test_the_log_is_followed_held_and_filtered(ui, api):
    ui.open("#/log")
    expect(ui.page.get_by_text("live", exact=True)).to_be_visible()
    lines = ui.page.get_by_role("log")

    requests.get(f"{ui.base}/api/whoami", auth=("nobody-here", "x"), timeout=in_time(60))
    expect(lines).to_contain_text("nobody-here")

    ui.page.get_by_role("button", name="Hold").click()
    requests.get(f"{ui.base}/api/whoami", auth=("nobody-there", "x"), timeout=in_time(60))
    ui.page.get_by_role("button", name="Go on (").click()
    expect(lines).to_contain_text("nobody-there")

    ui.page.get_by_label("Filter lines").fill("nobody-there")
    expect(lines).not_to_contain_text("nobody-here")
    ui.page.get_by_label("Least level").select_option("error")
    expect(lines.locator(".log-line")).to_have_count(0)
    expect(ui.page).to_have_url(f"{ui.base}/#/log?text=nobody-there&level=error")


# shovels and federation

def test_a_shovel_is_added_paused_resumed_and_deleted(ui, api, name):
    page = ui.page
    ui.open("#/shovels")
    page.get_by_role("button", name="Add a shovel").click()
    page.get_by_role("dialog").get_by_label("Name", exact=True).fill(name)
    page.get_by_label("From: queue").fill(f"{name}-from")
    page.get_by_label("To: queue").fill(f"{name}-to")
    page.get_by_label("More keys").fill("reconnect-delay = 7")
    page.get_by_role("button", name="Add", exact=True).click()
    row = page.get_by_role("row", name=name)
    expect(row).to_contain_text("running")
    assert api.get(f"parameters/shovel/%2F/{name}")["value"]["reconnect-delay"] == 7

    def do(verb):
        row.get_by_label("Choose this row").check()
        page.get_by_role("button", name=verb).click()

    do("Pause")
    expect(row).to_contain_text("paused")
    row.get_by_label("Choose this row").uncheck()
    do("Resume")
    expect(row).to_contain_text("running")
    row.get_by_label("Choose this row").uncheck()
    do("Delete")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)


def test_a_refused_shovel_says_why_and_stays_in_the_dialog(ui, name):
    ui.expect_complaint("400")
    ui.open("#/shovels")
    ui.page.get_by_role("button", name="Add a shovel").click()
    ui.page.get_by_role("dialog").get_by_label("Name", exact=True).fill(name)
    ui.page.get_by_role("button", name="Add", exact=True).click()

    expect(ui.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("src-")


def test_an_upstream_and_its_link_are_shown_and_deleted(ui, api, name):
    page = ui.page
    api.put(f"exchanges/%2F/{name}", {"type": "fanout"})
    api.put(f"policies/%2F/{name}", {
        "pattern": f"^{name}$", "definition": {"federation-upstream": name}, "apply-to": "exchanges"})
    ui.open("#/federation")
    page.get_by_role("button", name="Add an upstream").click()
    page.get_by_role("dialog").get_by_label("Name", exact=True).fill(name)
    page.get_by_label("URI").fill("amqp://127.0.0.1:1")
    page.get_by_role("button", name="Add", exact=True).click()

    row = page.get_by_role("region", name="Links").get_by_role("row", name=name)
    expect(row.get_by_role("link", name=name)).to_be_visible()
    expect(row).to_contain_text("127.0.0.1:1")

    upstream = page.get_by_role("region", name="Upstreams").get_by_role("row", name=name)
    upstream.get_by_label("Choose this row").check()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(upstream).to_have_count(0)
    api.delete(f"policies/%2F/{name}")


# MQTT

@pytest.fixture(scope="module")
def mqtt(tmp_path_factory):
    """A broker with MQTT."""
    with BrokerProcess(tmp_path_factory.mktemp("mqtt") / "data", http_port=0, mqtt_port=0) as process:
        yield process


@pytest.fixture
def base(request, managed):
    """Where the page is: of the broker with MQTT for tests that want it."""
    process = request.getfixturevalue("mqtt") if "mqtt" in request.fixturenames else managed
    return f"http://127.0.0.1:{process.ports['http']}"


def test_mqtt_clients_sessions_and_retained_messages_are_shown_and_ended(ui, mqtt, api):
    page = ui.page
    with closing(PahoClient(None, HOSTILE, port=mqtt.ports["mqtt"])) as client:
        client.paho.reconnect_delay_set(300, 300)  # once it is kicked
        client.subscribe("a/#")
        client.publish("a/b", b"kept", retain=True)

        ui.open("#/mqtt")
        row = page.get_by_role("row", name="alert(1)")
        expect(row).to_contain_text("\u27e8U+202E\u27e9")
        ui.open("#/mqtt/sessions")
        page.get_by_role("row", name="alert(1)").get_by_role("button", name="1", exact=True).click()
        expect(page.get_by_role("dialog")).to_contain_text("a/#")
        page.get_by_role("button", name="Done").click()

        ui.open("#/mqtt/retained")
        page.get_by_role("button", name="View").click()
        expect(page.get_by_role("dialog")).to_contain_text("kept")
        page.get_by_role("button", name="Done").click()
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        wait_until(lambda: api.get("mqtt/retained/%2F")["topics"] == [], what="nothing to be retained")

        ui.open("#/mqtt")
        row.get_by_label("Choose this row").check()
        page.get_by_role("button", name="Kick").click()
        page.get_by_role("dialog").get_by_role("button", name="Close", exact=True).click()
        expect(row).to_have_count(0)
        wait_until(lambda: api.get("mqtt/connections") == [], what="the client to be gone")


# definitions

def test_definitions_are_compared_before_they_are_imported(ui, api, name):
    api.put(f"queues/%2F/{name}", {"durable": True})
    page = ui.page
    ui.open("#/definitions")
    page.get_by_label("Definitions as JSON").fill(json.dumps({"queues": [
        {"name": name, "vhost": "/", "durable": False, "arguments": {}},
        {"name": f"{name}-{HOSTILE}", "vhost": "/", "durable": True, "arguments": {}},
    ]}))
    expect(page.get_by_role("button", name="Import")).to_be_disabled()

    page.get_by_role("button", name="What would change?").click()

    table = page.get_by_role("table", name="What would change")
    expect(table.get_by_role("row")).to_have_count(3)
    expect(table).to_contain_text("differs from here in durable")
    assert len(api.get(f"queues?name={name}&page=1")["items"]) == 1

    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("Imported:")).to_be_visible()
    assert {one["name"] for one in api.get(f"queues?name={name}&page=1")["items"]} == {
        name, f"{name}-{HOSTILE}"}


def test_what_is_no_definitions_is_told(ui):
    ui.open("#/definitions")
    ui.page.get_by_label("Definitions as JSON").fill("[1]")
    ui.page.get_by_role("button", name="What would change?").click()

    expect(ui.page.get_by_text("Definitions must be a JSON object.")).to_be_visible()


def test_definitions_are_saved_as_a_file(ui, tmp_path):
    ui.open("#/definitions")

    with ui.page.expect_download() as saved:
        ui.page.get_by_role("link", name="Save as a file").click()

    path = tmp_path / "definitions.json"
    saved.value.save_as(path)
    assert any(one["name"] == "guest" for one in json.loads(path.read_text())["users"])


# whom they are for

def test_pages_are_shown_to_whom_they_are_for(ui, base, name):
    API(base).put("users/plain", {"password": "plain", "tags": "management"})
    ui.log_in("plain", "plain")

    ui.open("#/queues")

    menu = ui.page.get_by_role("navigation")
    expect(menu.get_by_role("link", name="Queues")).to_be_visible()
    for label in ("Log", "Shovels", "Definitions"):
        expect(menu.get_by_role("link", name=label, exact=True)).to_have_count(0)
    ui.page.goto(f"{ui.base}/#/log")
    expect(ui.page.get_by_role("heading", name="No access")).to_be_visible()
