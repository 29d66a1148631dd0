// An MQTT client in the page, over WebSocket: to subscribe and publish as a device does.

import {form} from "../core/dialog.js";
import {badge, h, name, replace, visible} from "../core/dom.js";
import {doing, inbox, journal, layOut, socketUrl} from "../messages/client.js";
import {ofMqtt} from "../messages/received.js";
import {addStyle} from "../messages/style.js";
import {messageView} from "../messages/view.js";
import {MqttClient} from "../wire/mqtt.js";

const QOS = [["0", "0: at most once"], ["1", "1: at least once"], ["2", "2: exactly once"]];

export const title = () => "Try MQTT";

export async function show(root, params, context) {
    await addStyle();
    const log = journal(), box = inbox(), filters = h("ul", {class: "row", "aria-label": "Subscriptions"});
    let client = null;
    const random = Array.from(crypto.getRandomValues(new Uint8Array(4)), octet => octet.toString(16).padStart(2, "0")).join("");
    const vhost = context.vhost && context.vhost !== "/" ? `${context.vhost}:` : "";
    const login = form([
        {name: "username", label: "User", value: vhost + context.session.name, hint: "VHOST:USER for another virtual host"},
        {name: "password", label: "Password", type: "password", autocomplete: "off"},
        {name: "clientId", label: "Client id", value: `page-${random}`},
        {name: "version", label: "Version", type: "select", options: [["5", "MQTT 5"], ["4", "MQTT 3.1.1"]]},
    ]);
    const publishing = form([
        {name: "topic", label: "Topic"}, {name: "qos", label: "QoS", type: "select", options: QOS},
        {name: "retain", label: "Retain", type: "check"},
        {name: "payload", label: "Payload", type: "textarea", rows: 3},
    ]);
    const subscribing = form([
        {name: "filter", label: "Topic filter", value: "#"}, {name: "qos", label: "QoS at most", type: "select", options: QOS},
    ]);
    const open = () => {
        if (!client?.isOpen) throw new Error("not connected");
        return client;
    };
    const disconnect = async () => {
        const mine = client;
        client = null;
        mine?.close();
        replace(filters);
        log.state(false, "not connected");
    };
    const connect = async () => {
        await disconnect();
        const {version, ...rest} = login.values();
        const mine = new MqttClient({
            url: socketUrl("/ws/mqtt"), version: Number(version), ...rest,
            onMessage: message => box.add(messageView(ofMqtt(message, box.next), {actions: () => [
                badge(`QoS ${message.qos}`), message.retain ? badge("retained", "warn") : null, message.duplicate ? badge("again", "warn") : null]})),
            onClosed: reason => {
                if (client !== mine) return;
                replace(filters);
                log.state(false, "not connected");
                log.say(false, visible(reason));
            },
        });
        log.state(false, "connecting\u2026");
        try {
            await mine.connect();
        } catch (error) {
            log.state(false, "not connected");
            throw error;
        }
        client = mine;
        log.state(true, `connected as ${visible(rest.clientId)}`);
        log.say(true, "connected");
    };
    const publish = async () => {
        const {topic, qos, retain, payload} = publishing.values();
        await open().publish(topic, new TextEncoder().encode(payload), {qos: Number(qos), retain});
        log.say(true, qos === "0" ? "sent: " : "acknowledged: ", name(topic));
    };
    const subscribe = async () => {
        const {filter, qos} = subscribing.values();
        const granted = await open().subscribe(filter, Number(qos));
        const item = h("li", {class: "row"}, badge(`QoS ${granted}`, "good"), name(filter), doing(log, "Unsubscribe", async () => {
            await open().unsubscribe(filter);
            item.remove();
        }));
        filters.append(item);
        log.say(true, "subscribed to ", name(filter));
    };
    context.signal.addEventListener("abort", () => client?.close());
    layOut(root, {title: title(), log, box, login, connect, disconnect, parts: [
        ["Publish", publishing.element, doing(log, "Publish", publish, "primary")],
        ["Subscribe", subscribing.element, filters, doing(log, "Subscribe", subscribe, "primary")],
    ]});
}
