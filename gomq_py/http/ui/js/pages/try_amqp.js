// An AMQP client in the page, over WebSocket: to publish with confirms and consume as an application does.

import {form, readArguments} from "../core/dialog.js";
import {badge, h, name, replace, visible} from "../core/dom.js";
import {doing, inbox, journal, layOut, shownName, socketUrl} from "../messages/client.js";
import {ofAmqp} from "../messages/received.js";
import {addStyle} from "../messages/style.js";
import {messageView} from "../messages/view.js";
import {AmqpClient} from "../wire/amqp.js";

export const title = () => "Try AMQP";

export async function show(root, params, context) {
    await addStyle();
    const log = journal(), box = inbox(), consumers = h("ul", {class: "row", "aria-label": "Consumers"});
    const noAcks = new Map();
    let client = null;
    const login = form([
        {name: "username", label: "User", value: context.session.name},
        {name: "password", label: "Password", type: "password", autocomplete: "off"},
        {name: "vhost", label: "Virtual host", value: context.vhost || "/"},
    ]);
    const publishing = form([
        {name: "exchange", label: "Exchange", placeholder: "(default)", value: "amq.topic"},
        {name: "key", label: "Routing key"},
        {name: "content_type", label: "Content type", value: "text/plain"},
        {name: "mandatory", label: "Mandatory", type: "check", value: true, hint: "returned if no queue takes it"},
        {name: "headers", label: "Headers, a line each", type: "textarea", rows: 2},
        {name: "body", label: "Body", type: "textarea", rows: 3},
    ]);
    const consuming = form([
        {name: "queue", label: "A queue", placeholder: "(a new one of its own)", hint: "messages of a queue that is there are taken from it"},
        {name: "exchange", label: "Or what comes over the exchange", value: "amq.topic"},
        {name: "key", label: "With the routing key", value: "#"},
        {name: "prefetch", label: "Prefetch", type: "number", min: 0, max: 65535, step: 1, value: 10},
        {name: "byHand", label: "Acknowledge by hand", type: "check"},
        {name: "offset", label: "From, of a stream", type: "select", options: [["", "not a stream"], "first", "last", "next"]},
    ]);
    const open = () => {
        if (!client?.isOpen) throw new Error("not connected");
        return client;
    };
    const settled = (message, node, what, work) => doing(log, what, () => {
        work();
        node.querySelector(".settle").replaceChildren(badge(what.toLowerCase()));
    });
    const came = content => {
        const message = ofAmqp(content, box.next);
        if (content.isReturn) log.say(false, `came back: ${content.replyCode} `, name(content.replyText));
        const isByHand = noAcks.get(content.consumerTag) === "hand";
        const node = messageView(message, {actions: isByHand ? () => [h("span", {class: "row settle"},
            settled(message, node, "Acknowledge", () => open().ack(content.deliveryTag)),
            settled(message, node, "Requeue", () => open().reject(content.deliveryTag, true)),
            settled(message, node, "Reject", () => open().reject(content.deliveryTag, false)))] : undefined});
        if (!content.isReturn && !isByHand && noAcks.get(content.consumerTag) !== "none") client.ack(content.deliveryTag);
        box.add(node);
    };
    const disconnect = async () => {
        const mine = client;
        client = null;
        await mine?.close();
        replace(consumers);
        noAcks.clear();
        log.state(false, "not connected");
    };
    const connect = async () => {
        await disconnect();
        const {username, password, vhost} = login.values();
        const mine = new AmqpClient({
            url: socketUrl("/ws/amqp"), username, password, vhost, onDelivery: came, onReturn: came,
            onBlocked: reason => log.say(!reason, reason ? `publishers are held: ${visible(reason)}` : "publishers go on"),
            onClosed: (reason, isChannel) => {
                if (client !== mine) return;
                log.say(false, visible(reason));
                replace(consumers);
                if (isChannel) mine.openChannel().then(() => log.say(true, "a new channel is open"), error => log.say(false, error.message));
                else log.state(false, "not connected");
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
        log.state(true, `connected to ${visible(vhost)} as ${visible(username)}`);
        log.say(true, "connected");
    };
    const publish = async () => {
        const {exchange, key, content_type: contentType, mandatory, headers, body} = publishing.values();
        const table = readArguments(headers);
        const properties = {content_type: contentType, delivery_mode: 2, ...(Object.keys(table).length ? {headers: table} : {})};
        await open().publish(exchange, key, properties, new TextEncoder().encode(body), {mandatory});
        log.say(true, "confirmed: ", shownName(exchange), ", key ", name(key));
    };
    const consume = async () => {
        const {queue, exchange, key, prefetch, byHand, offset} = consuming.values();
        const from = queue || await open().temporaryQueue(exchange, key);
        const tag = await open().consume(from, {prefetch: prefetch ?? 10, consumeArguments: offset ? {"x-stream-offset": offset} : {}});
        noAcks.set(tag, byHand ? "hand" : "ack");
        const item = h("li", {class: "row"}, badge("consumes", "good"), name(queue || `${exchange || "(default)"}, ${key}`), doing(log, "Cancel", async () => {
            await open().cancel(tag);
            item.remove();
        }));
        consumers.append(item);
        log.say(true, "consumes ", name(from));
    };
    context.signal.addEventListener("abort", () => client?.close());
    layOut(root, {title: title(), log, box, login, connect, disconnect, parts: [
        ["Publish", publishing.element, doing(log, "Publish", publish, "primary")],
        ["Consume", consuming.element, consumers, doing(log, "Consume", consume, "primary")],
    ]});
}
