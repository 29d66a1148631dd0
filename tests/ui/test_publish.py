"""Publishing by hand, and templates."""
from playwright.sync_api import expect


def fill(ui, **values):
    """Fill fields by their labels."""
    for label, value in values.items():
        ui.page.get_by_label(label.replace("_", " "), exact=True).fill(value)


def publish(ui):
    """Press the button."""
    ui.page.get_by_role("button", name="Publish", exact=True).click()


def test_a_message_is_published_with_properties_and_headers(ui, api, name):
    api.put(f"queues/%2F/{name}", {"durable": True})

    ui.open(f"#/publish?key={name}")
    fill(ui, Body='{"a": 1}', Times="2")
    ui.page.get_by_text("Properties and headers").click()
    fill(ui, Content_type="application/json", Message_id="m-1", Priority="3")
    ui.page.get_by_label("Headers, a line each").fill('n = 1\nkind = bad\ndeep = {"x": [true]}')
    publish(ui)

    expect(ui.page.get_by_text("a queue took each")).to_be_visible()
    first, second = api.get(f"queues/%2F/{name}/messages")
    assert first["payload"] == second["payload"] == '{"a": 1}'
    assert first["properties"] == {
        "content_type": "application/json", "message_id": "m-1", "priority": 3, "delivery_mode": 2,
        "headers": {"n": 1, "kind": "bad", "deep": {"x": [True]}}}


def test_a_message_that_no_queue_took_is_told(ui):
    ui.open("#/publish?exchange=amq.topic&key=nowhere")
    fill(ui, Body="x")
    publish(ui)

    expect(ui.page.get_by_text("no queue took it")).to_be_visible()


def test_bodies_are_checked_before_they_are_sent(ui, api, name):
    api.put(f"queues/%2F/{name}", {"durable": True})

    ui.open(f"#/publish?key={name}")
    for form, body, complaint in (
        ("hex", "0", "these are no pairs"), ("base64", "*", "this is not base64"), ("json", "{", "JSON"),
    ):
        ui.page.get_by_label("Body is").select_option(form)
        fill(ui, Body=body)
        publish(ui)
        expect(ui.page.get_by_role("alert").filter(has_text=complaint)).to_be_visible()
    ui.page.get_by_label("Body is").select_option("hex")
    fill(ui, Body="00 ff")
    publish(ui)

    expect(ui.page.get_by_text("a queue took it")).to_be_visible()
    (message,) = api.get(f"queues/%2F/{name}/messages?encoding=base64")
    assert message["payload"] == "AP8="


def test_what_the_broker_refuses_is_told(ui):
    ui.expect_complaint("400")
    ui.open("#/publish?exchange=not-there&key=x")
    publish(ui)

    expect(ui.page.get_by_role("alert").filter(has_text="not_found")).to_be_visible()


def test_templates_are_kept_in_this_browser(ui, api, name):
    api.put(f"queues/%2F/{name}", {"durable": True})
    template = "<b>'template'"

    ui.open(f"#/publish?key={name}")
    fill(ui, Body="of the template")
    ui.page.get_by_role("button", name="Save").click()
    ui.page.get_by_role("dialog").get_by_label("Name").fill(template)
    ui.page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(ui.page.get_by_role("dialog")).to_have_count(0)
    ui.page.reload()
    ui.wait_shown()
    fill(ui, Body="something else", Routing_key="elsewhere")
    ui.page.get_by_label("Template", exact=True).select_option(template)
    expect(ui.page.get_by_label("Body", exact=True)).to_have_value("of the template")
    publish(ui)

    expect(ui.page.get_by_text("a queue took it")).to_be_visible()
    ui.page.get_by_label("Template", exact=True).select_option(template)
    ui.page.get_by_role("button", name="Forget").click()
    expect(ui.page.get_by_label("Template", exact=True).locator("option")).to_have_count(1)
