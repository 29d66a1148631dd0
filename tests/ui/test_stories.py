"""What people come to the page for, from the first click to the last."""
import re
import signal

import pika
import pytest
import requests
from playwright.sync_api import expect

from tests.support.broker_process import BrokerProcess
from tests.support.page import API
from tests.support.waiting import in_time, wait_until


def test_the_queue_that_grows_is_found_and_its_chart_moves(ui, api, channel, name):
    for number in range(5):
        channel.queue_declare(f"{name}-{number}", durable=True)
    for number in range(60):
        channel.basic_publish("", f"{name}-3", b"x")

    ui.open(f"#/queues?name={name}")
    ui.page.get_by_role("button", name="Ready").click()
    first = ui.page.locator("tbody tr").first
    expect(first).to_contain_text(f"{name}-3")
    ui.page.keyboard.press("Escape")
    first.get_by_role("link", name=f"{name}-3").click()
    chart = ui.page.get_by_role("img", name="Messages: Ready 60")
    expect(chart).to_be_visible()
    channel.basic_publish("", f"{name}-3", b"x")

    expect(ui.page.get_by_role("img", name="Messages: Ready 61")).to_be_visible()
    line = ui.page.locator(".plot .line.s1").first
    before = line.get_attribute("d")
    wait_until(
        lambda: line.get_attribute("d") != before and "L" in line.get_attribute("d"),
        sleep=lambda _: ui.page.wait_for_timeout(50), what="a curve that moves")
    ui.page.locator(".behind summary").first.click()
    expect(ui.page.locator(".behind table").first).to_contain_text("61")


def test_a_restricted_user_sees_the_page_shrink(ui, api, name):
    api.put(f"users/{name}", {"password": name, "tags": "administrator"})
    api.put(f"permissions/%2F/{name}", {"configure": ".*", "write": ".*", "read": ".*"})
    ui.expect_complaint("401")
    ui.open("#/users", name, name)
    expect(ui.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Nodes")).to_be_visible()

    api.put(f"users/{name}", {"password": name, "tags": "management"})
    ui.page.keyboard.press("r")
    expect(ui.page.get_by_role("heading", name="Log in")).to_be_visible()
    expect(ui.page.get_by_role("alert")).to_have_text("The session has ended.")
    ui.page.get_by_label("Name").fill(name)
    ui.page.get_by_label("Password").fill(name)
    ui.page.get_by_role("button", name="Log in").click()

    expect(ui.page.get_by_role("heading", level=1)).to_have_text("No access")
    menu = ui.page.get_by_role("navigation", name="Pages")
    expect(menu.get_by_role("link", name="Queues")).to_be_visible()
    expect(menu.get_by_role("link", name="Nodes")).to_have_count(0)
    expect(menu.get_by_role("link", name="Users")).to_have_count(0)


def test_a_broker_that_is_restarted_under_the_page_is_waited_for(browser_context, broker_process):
    from tests.support.ports import reserve
    port = reserve()
    broker = broker_process(http_port=port).start()
    ui = browser_context(f"http://127.0.0.1:{port}")
    ui.expect_complaint("net::ERR_|401|503")  # by how far a request has come when the broker stops
    API(ui.base).put("queues/%2F/kept", {"durable": True})
    ui.open("#/queues?name=kep")
    expect(ui.page.get_by_role("link", name="kept")).to_be_visible()

    broker.stop()
    expect(ui.page.get_by_text("The broker does not answer")).to_be_visible()
    expect(ui.page.get_by_role("link", name="kept")).to_be_visible()
    broker.start()

    expect(ui.page.get_by_role("heading", name="Log in")).to_be_visible()
    ui.page.get_by_label("Name").fill("guest")
    ui.page.get_by_label("Password").fill("guest")
    ui.page.get_by_role("button", name="Log in").click()
    expect(ui.page.get_by_role("link", name="kept")).to_be_visible()
    expect(ui.page).to_have_url(f"{ui.base}/#/queues?name=kep")


def test_the_first_view_takes_few_requests_and_little(ui):
    ui.log_in()
    ui.context.add_init_script("localStorage.setItem('gomq.refresh', '0')")  # a second look is none of it
    sizes = []
    ui.page.on("response", lambda response: sizes.append(response))
    ui.open("#/")
    expect(ui.page.get_by_role("img", name="Messages in queues")).to_be_visible()

    parts = [one.request.sizes() for one in sizes]
    octets = sum(one["responseBodySize"] + one["responseHeadersSize"] for one in parts)
    urls = {one.url for one in sizes}  # Chromium asks for the icon once or twice

    assert len(urls) <= 15, urls
    assert octets <= 300 * 1024, octets
    # One round trip after the page itself: it names all that the first view is made of.
    named = requests.get(ui.base, timeout=in_time(60)).text
    assert [url for url in urls if "/ui/" in url and url.removeprefix(ui.base) not in named] == []


def test_declare_bind_pause_and_delete(ui, api, name):
    dialog = ui.declare("#/queues", name)
    dialog.get_by_label("Message TTL (ms)").fill("60000")
    dialog.get_by_role("button", name="Declare").click()
    expect(ui.page.get_by_role("link", name=name)).to_be_visible()
    assert api.get(f"queues/%2F/{name}")["arguments"] == {"x-message-ttl": 60000}

    ui.page.get_by_role("link", name=name).click()
    ui.page.get_by_role("link", name="Bindings").click()
    ui.page.get_by_role("button", name="Bind…").click()
    dialog.get_by_label("From exchange").fill("amq.topic")
    dialog.get_by_label("Routing key").fill("a.#")
    dialog.get_by_role("button", name="Bind", exact=True).click()
    expect(ui.page.get_by_role("link", name="amq.topic")).to_be_visible()
    expect(ui.page).to_have_url(re.compile("tab=bindings"))
    ui.page.get_by_role("button", name="Pause").click()
    expect(ui.page.get_by_role("button", name="Resume")).to_be_visible()
    assert api.get(f"queues/%2F/{name}")["state"] == "paused"

    ui.page.get_by_role("button", name="Delete…").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog).to_be_visible()  # its name is to be typed
    dialog.get_by_label(f"Type {name} to confirm").fill(name)
    dialog.get_by_role("button", name="Delete").click()
    expect(ui.page.get_by_role("heading", level=1)).to_have_text("Queues")
    assert name not in [one["name"] for one in api.get("queues/%2F")]


def test_a_refusal_is_told_where_it_was_asked_for(ui, api, name):
    ui.expect_complaint("400")
    api.put(f"queues/%2F/{name}", {"durable": True})
    dialog = ui.declare("#/queues", name)
    dialog.get_by_label("Auto-delete").check()
    dialog.get_by_role("button", name="Declare").click()

    expect(dialog.get_by_role("alert")).to_contain_text("inequivalent arg 'auto_delete'")


def test_a_connection_is_closed_with_a_reason_that_its_client_is_told(ui, api, managed, name):
    parameters = pika.URLParameters(managed.amqp_url)
    parameters.client_properties = {"connection_name": name}
    connection = pika.BlockingConnection(parameters)
    wait_until(lambda: [one for one in api.get("connections") if one["user_provided_name"] == name])
    ui.open("#/connections")
    ui.page.get_by_role("row").filter(has_text=name).get_by_role("checkbox").check()
    ui.page.get_by_role("button", name="Close…").click()
    ui.page.get_by_label("Reason").fill("we move house")
    ui.page.get_by_role("button", name="Close", exact=True).click()

    with pytest.raises(pika.exceptions.AMQPConnectionError, match="we move house"):
        while True:
            connection.process_data_events(1)
    expect(ui.page.get_by_role("row").filter(has_text=name)).to_have_count(0)


def test_keys_lead_through_lists_and_to_objects(ui, api, name):
    for letter in "abc":
        api.put(f"queues/%2F/{name}-{letter}")
    ui.open(f"#/queues?name={name}")
    for key in "jj":
        ui.page.keyboard.press(key)
    ui.page.keyboard.press("Enter")
    expect(ui.page.get_by_role("heading", level=1)).to_have_text(f"{name}-b")

    ui.page.go_back()
    expect(ui.page.get_by_role("heading", level=1)).to_have_text("Queues")
    ui.page.keyboard.press("Control+k")
    ui.page.get_by_role("combobox", name="Search").fill(f"{name}-c")
    expect(ui.page.get_by_role("option").filter(has_text=f"{name}-c")).to_be_visible()
    ui.page.keyboard.press("Enter")
    expect(ui.page.get_by_role("heading", level=1)).to_have_text(f"{name}-c")

    ui.page.keyboard.press("?")
    expect(ui.page.get_by_role("dialog", name="Keys")).to_be_visible()


def test_order_filter_and_columns_stand_in_the_address_or_are_kept(ui, api, name):
    for letter in "ab":
        api.put(f"queues/%2F/{name}-{letter}")
    ui.open("#/queues")
    ui.page.get_by_label("Filter Queues").fill(name)
    expect(ui.page.locator("tbody tr")).to_have_count(2)
    ui.page.get_by_role("button", name="Name", exact=True).click()
    expect(ui.page.locator("tbody tr").first).to_contain_text(f"{name}-b")
    ui.page.get_by_text("Columns", exact=True).click()
    ui.page.get_by_role("group", name="Columns").get_by_label("Bytes").check()
    expect(ui.page.get_by_role("columnheader", name="Bytes")).to_be_visible()

    ui.page.reload()

    expect(ui.page.locator("tbody tr").first).to_contain_text(f"{name}-b")
    expect(ui.page.get_by_label("Filter Queues")).to_have_value(name)
    expect(ui.page.get_by_role("columnheader", name="Bytes")).to_be_visible()


def test_colours_are_chosen_and_kept(ui):
    ui.page.emulate_media(color_scheme="light")
    ui.open("#/queues")

    def ground():
        return ui.page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = ground()
    ui.page.get_by_role("button", name="Colours: system").click()
    ui.page.get_by_role("button", name="Colours: light").click()
    expect(ui.page.get_by_role("button", name="Colours: dark")).to_be_visible()
    dark = ground()
    ui.page.reload()
    ui.wait_shown()

    assert light != dark == ground()


def test_a_day_is_drawn_in_no_time(ui):
    """A chart of 86 400 points: what is drawn is at most a point for each pixel, within a frame or two."""
    ui.open("#/")
    took, points = ui.page.evaluate("""async () => {
        const {lineChart} = await import("/ui/js/core/chart.js");
        const now = Date.now();
        const points = Array.from(
            {length: 86400}, (_, second) => [now - (86400 - second) * 1000, second % 977]);
        const chart = lineChart({title: "A day", seconds: 86400, series: [{label: "One", points}]});
        document.getElementById("main").append(chart.element);
        await new Promise(resolve => setTimeout(resolve, 100));
        let took = Infinity;
        for (let turn = 0; turn < 5; turn++) {
            const began = performance.now();
            chart.update([{label: "One", points}], 86400);
            took = Math.min(took, performance.now() - began);
        }
        return [took, chart.svg.querySelector(".line").getAttribute("d").split("L").length];
    }""")

    assert points < 2000 and took < in_time(100), (took, points)


def test_deep_link_to_what_is_not_there_says_so(ui):
    ui.expect_complaint("404")
    ui.open("#/queues/%2F/nobody-declared-me")

    expect(ui.page.get_by_role("alert")).to_contain_text("Not found")


def test_what_stands_beside_a_chart_is_not_cut_off(ui):
    ui.open("/")
    starts = ui.page.evaluate("""async () => {
        const {lineChart} = await import("/ui/js/core/chart.js");
        const now = Date.now(), points = [[now - 5000, 0], [now, 1.5e9]];
        const chart = lineChart({title: "Long", series: [{label: "One", points}],
                                 unit: value => `${value.toLocaleString("en")} bytes/s`});
        document.getElementById("main").append(chart.element);
        while (!chart.width) await new Promise(done => requestAnimationFrame(done));
        chart.update([{label: "One", points}]);
        return [...chart.svg.querySelectorAll("text.tick")].map(tick => tick.getBBox().x);
    }""")

    assert len(starts) > 2 and min(starts) >= 0


def test_a_queues_page_names_the_group_that_most_messages_wait_for(ui, channel, name):
    group = "<b>acme</b>"
    channel.queue_declare(name, durable=True, arguments={"x-message-group": "header:customer"})
    for customer in (group, group, group, "other"):
        channel.basic_publish("", name, b"x", pika.BasicProperties(headers={"customer": customer}))
    wait_until(lambda: channel.basic_get(name)[0])
    channel.connection.channel().basic_get(name)

    ui.open(f"#/queues/%2F/{name}")

    expect(ui.page.get_by_text(f"{group}: 2", exact=True)).to_be_visible()
    expect(ui.page.get_by_text("2 of 1 groups", exact=True)).to_be_visible()


def test_a_user_is_offered_only_what_the_permissions_allow(ui, api, channel, name):
    """An empty expression grants nothing."""
    for queue in (f"{name}-mine", f"{name}-theirs"):
        channel.queue_declare(queue, durable=True)
    api.put(f"users/{name}", {"password": name, "tags": "management"})
    api.put(f"permissions/%2F/{name}", {"configure": "", "write": "", "read": f"^{name}-mine$"})

    def offered():
        return {one.inner_text() for one in ui.page.locator("main .head button, main .head a.button").all()}

    ui.open(f"#/queues/%2F/{name}-theirs", name, name)
    expect(ui.page.get_by_role("heading", level=1)).to_have_text(f"{name}-theirs")
    theirs = offered()
    ui.open(f"#/queues/%2F/{name}-mine")
    expect(ui.page.get_by_role("heading", level=1)).to_have_text(f"{name}-mine")
    mine = offered()
    ui.open(f"#/queues?name={name}")
    ui.page.get_by_role("row", name=f"{name}-mine").get_by_role("checkbox").check()

    expect(ui.page.get_by_role("button", name="Purge")).to_be_visible()
    expect(ui.page.get_by_role("button", name="Delete")).to_have_count(0)
    expect(ui.page.get_by_role("button", name="Pause")).to_have_count(0)
    expect(ui.page.get_by_role("button", name="Declare")).to_have_count(0)
    assert (theirs, mine) == ({"Unacked"}, {"Unacked", "Move or copy\u2026", "Purge\u2026"})


def test_a_broker_that_stands_still_is_told_though_the_page_asks_for_nothing(browser_context, tmp_path):
    with BrokerProcess(tmp_path / "data", http_port=0) as process:
        ui = browser_context(f"http://127.0.0.1:{process.ports['http']}")
        ui.open("#/queues")
        ui.page.evaluate("localStorage.setItem('gomq.refresh', '0')")
        ui.page.reload()
        expect(ui.page.get_by_role("heading", level=1)).to_have_text("Queues")

        process.signal(signal.SIGSTOP)
        try:
            expect(ui.page.get_by_text("The broker does not answer. The figures are from")).to_be_visible()
        finally:
            process.signal(signal.SIGCONT)

        expect(ui.page.get_by_text("The broker does not answer")).to_have_count(0)


def test_dialog_begins_where_something_must_be_filled_in(ui):
    ui.open("#/queues")
    ui.page.get_by_role("button", name="Declare\u2026").click()

    expect(ui.page.get_by_role("dialog").get_by_label("Name")).to_be_focused()


def test_queue_list_on_a_phone_shows_first_what_waits_and_who_takes(ui, channel, name):
    channel.queue_declare(name, durable=True)
    ui.page.set_viewport_size({"width": 400, "height": 800})

    ui.open(f"#/queues?name={name}")

    expect(ui.page.get_by_role("link", name=name)).to_be_visible()
    heads = ui.page.locator("main thead th").all_inner_texts()
    assert [head.strip() for head in heads if head.strip()][:3] == ["Name", "Ready", "Consumers"]


def test_listener_on_a_path_is_shown_without_a_port(look):
    look.open("#/")

    expect(look.page.locator("main .badge").first).to_be_visible()
    assert not [one for one in look.page.locator("main .badge").all_inner_texts() if one.endswith(":0")]
