"""The AMQP and MQTT clients in the page, beside pika and paho."""
import pytest
from playwright.sync_api import expect

from tests.support.waiting import wait_until


def connect(ui, protocol, password="guest"):
    """Open the page and log in there."""
    ui.open(f"#/try/{protocol}")
    ui.page.get_by_label("Password").fill(password)
    ui.page.get_by_role("button", name="Connect", exact=True).click()


def panel(ui, title):
    """The panel with this heading."""
    return ui.page.locator("section.panel", has=ui.page.get_by_role("heading", name=title, exact=True))


def test_the_amqp_client_publishes_with_confirms_and_gets_what_comes_back(ui, channel, name):
    channel.queue_declare(name)

    connect(ui, "amqp")
    expect(ui.page.get_by_text("connected to / as guest")).to_be_visible()
    publishing = panel(ui, "Publish")
    publishing.get_by_label("Exchange").fill("")
    publishing.get_by_label("Routing key").fill(name)
    publishing.get_by_label("Headers, a line each").fill("n = 1\ndeep = [true, {\"x\": \"y\"}]")
    publishing.get_by_label("Body").fill("h\u00e9llo")
    publishing.get_by_role("button", name="Publish").click()
    expect(ui.page.get_by_text("confirmed: (default)")).to_be_visible()
    publishing.get_by_label("Routing key").fill("nowhere at all")
    publishing.get_by_role("button", name="Publish").click()

    expect(ui.page.get_by_text("came back: 312")).to_be_visible()
    _, properties, body = wait_until(lambda: (got := channel.basic_get(name, auto_ack=True))[0] and got)
    assert body == "h\u00e9llo".encode()
    assert properties.headers == {"n": 1, "deep": [True, {"x": "y"}]}
    assert (properties.content_type, properties.delivery_mode) == ("text/plain", 2)


def test_the_amqp_client_consumes_and_acknowledges_by_hand(ui, api, channel, name):
    channel.queue_declare(name)
    channel.basic_publish("", name, b"a" * 300_000)

    connect(ui, "amqp")
    consuming = panel(ui, "Consume")
    expect(ui.page.get_by_text("connected to")).to_be_visible()
    consuming.get_by_label("A queue", exact=False).first.fill(name)
    consuming.get_by_label("Acknowledge by hand").check()
    consuming.get_by_role("button", name="Consume").click()
    message = ui.page.locator("details.message")
    expect(message.locator(".size")).to_have_text("293 KiB")
    wait_until(lambda: api.get(f"queues/%2F/{name}")["messages_unacknowledged"] == 1)
    message.locator("summary").click()
    message.get_by_role("button", name="Acknowledge").click()

    wait_until(lambda: api.get(f"queues/%2F/{name}")["messages"] == 0)
    consuming.get_by_role("button", name="Cancel").click()
    expect(consuming.get_by_role("button", name="Cancel")).to_have_count(0)


def test_a_channel_that_the_broker_closes_is_opened_anew(ui):
    connect(ui, "amqp")
    expect(ui.page.get_by_text("connected to")).to_be_visible()
    publishing = panel(ui, "Publish")
    publishing.get_by_label("Exchange").fill("not there")
    publishing.get_by_role("button", name="Publish").click()
    expect(ui.page.get_by_text("404 NOT_FOUND").first).to_be_visible()
    expect(ui.page.get_by_text("a new channel is open")).to_be_visible()
    publishing.get_by_label("Exchange").fill("amq.topic")
    publishing.get_by_label("Mandatory").uncheck()
    publishing.get_by_role("button", name="Publish").click()

    expect(ui.page.get_by_text("confirmed: amq.topic")).to_be_visible()


@pytest.mark.parametrize("protocol", ["amqp", "mqtt"])
def test_a_wrong_password_is_told(ui, protocol):
    connect(ui, protocol, "wrong")

    expect(panel(ui, "Log").get_by_role("listitem")).to_contain_text(
        "403 ACCESS_REFUSED" if protocol == "amqp" else "wrong user or password")
    expect(ui.page.get_by_text("not connected")).to_be_visible()


@pytest.mark.parametrize(("version", "qos"), [("5", "2"), ("4", "1")])
def test_the_mqtt_client_gets_what_it_subscribes_to(ui, channel, name, version, qos):
    topic = f"{name}-{version}"
    channel.queue_declare(topic)
    channel.queue_bind(topic, "amq.topic", f"{topic}.a")

    ui.open("#/try/mqtt")
    ui.page.get_by_label("Version").select_option(version)
    ui.page.get_by_label("Password").fill("guest")
    ui.page.get_by_label("Password").press("Enter")
    expect(ui.page.get_by_text("connected as page-")).to_be_visible()
    panel(ui, "Subscribe").get_by_label("Topic filter").fill(f"{topic}/#")
    panel(ui, "Subscribe").get_by_label("QoS at most").select_option(qos)
    panel(ui, "Subscribe").get_by_role("button", name="Subscribe").click()
    expect(ui.page.get_by_text("subscribed to")).to_be_visible()
    publishing = panel(ui, "Publish")
    publishing.get_by_label("Topic").fill(f"{topic}/a")
    publishing.get_by_label("QoS").select_option(qos)
    publishing.get_by_label("Payload").fill("from the page")
    publishing.get_by_role("button", name="Publish").click()

    expect(ui.page.get_by_text("acknowledged:")).to_be_visible()
    message = ui.page.locator("details.message")
    expect(message).to_have_count(1)
    expect(message.locator(".preview")).to_have_text("from the page")
    _, _, body = wait_until(lambda: (got := channel.basic_get(topic, auto_ack=True))[0] and got)
    assert body == b"from the page"
    channel.basic_publish("amq.topic", f"{topic}.b", b"from AMQP")
    expect(message).to_have_count(2)


def test_leaving_the_page_ends_the_connection(ui, api):
    before = {one["name"] for one in api.get("connections")}
    connect(ui, "amqp")
    expect(ui.page.get_by_text("connected to")).to_be_visible()
    own = {one["name"] for one in api.get("connections")} - before

    ui.open("#/queues")

    wait_until(lambda: not own & {one["name"] for one in api.get("connections")})
