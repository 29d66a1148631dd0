// MQTT: the clients that are connected, and the sessions that are kept of clients; kicking the one, ending the other.

import {at, get, send} from "../core/api.js";
import {ask, tell} from "../core/dialog.js";
import {badge, h, name, nameLink} from "../core/dom.js";
import {ago, duration, number, octets} from "../core/format.js";
import {href, link} from "../core/router.js";
import {table} from "../core/table.js";

const isSessions = () => location.hash.startsWith("#/mqtt/sessions");

export const title = () => isSessions() ? "MQTT sessions" : "MQTT clients";

export async function show(root, params, context) {
    const list = isSessions() ? sessions(context) : clients(context);
    root.append(h("h1", null, title()), list.element);
    await list.start();
}

const of = (kind, context, query) => get(context.vhost ? at("mqtt", kind, context.vhost) : `mqtt/${kind}`, {signal: context.signal, query});

function clients(context) {
    return table({
        id: "mqtt-clients", caption: "MQTT clients", context, order: "client_id", empty: "There are no MQTT clients.",
        key: row => `${row.vhost}\n${row.client_id}\n${row.name}`,
        href: row => link("connections", row.name),
        load: query => of("connections", context, query),
        columns: [
            {key: "client_id", label: "Client", sort: "client_id", cell: row => nameLink(link("connections", row.name), row.client_id)},
            {key: "vhost", label: "Virtual host", sort: "vhost", cell: row => name(row.vhost)},
            {key: "user", label: "User", sort: "user", cell: row => name(row.user)},
            {key: "protocol", label: "Protocol", sort: "protocol", cell: row => h("span", null, row.protocol,
                row.websocket ? [" ", badge("WebSocket")] : null, row.ssl ? [" ", badge("TLS", "good")] : null)},
            {key: "peer", label: "From", sort: "peer_host", cell: row => name(`${row.peer_host}:${row.peer_port}`)},
            {key: "state", label: "State", sort: "state", cell: row => badge(row.state, row.state === "running" ? "good" : "warn")},
            {key: "subscriptions", label: "Subscriptions", sort: "subscriptions", numeric: true, cell: row => h("a", {
                href: href("/mqtt/sessions", {name: row.client_id})}, number(row.subscriptions))},
            {key: "keep_alive", label: "Keep alive", sort: "keep_alive", numeric: true, hidden: true, cell: row => duration(row.keep_alive)},
            {key: "connected_at", label: "For", sort: "connected_at", numeric: true, cell: row => ago(row.connected_at)},
        ],
        actions: [{label: "Kick\u2026", kind: "danger", run: kick}],
    });
}

async function kick(rows) {
    await ask({
        title: "Close connections", submit: "Close", danger: true,
        text: h("p", null, "Persistent sessions stay: ", rows.map((one, index) => [index ? ", " : "", name(one.client_id)]), "."),
        run: async () => {
            for (const one of rows) await send("DELETE", `${at("mqtt", "sessions", one.vhost, one.client_id)}/connection`);
        },
    });
}

function sessions(context) {
    return table({
        id: "mqtt-sessions", caption: "MQTT sessions", context, order: "client_id", empty: "There are no sessions.",
        key: row => `${row.vhost}\n${row.client_id}`,
        load: query => of("sessions", context, query),
        columns: [
            {key: "client_id", label: "Client", sort: "client_id", cell: row => name(row.client_id)},
            {key: "vhost", label: "Virtual host", sort: "vhost", cell: row => name(row.vhost)},
            {key: "user", label: "User", sort: "user", cell: row => name(row.user)},
            {key: "connected", label: "State", sort: "connected", cell: row => row.connected ? badge("connected", "good") : badge("away")},
            {key: "protocol", label: "Protocol", sort: "protocol", hidden: true, cell: row => row.protocol},
            {key: "messages", label: "Messages", sort: "messages", numeric: true, cell: row => number(row.messages)},
            {key: "message_bytes", label: "Bytes", sort: "message_bytes", numeric: true, cell: row => octets(row.message_bytes)},
            {key: "subscriptions", label: "Subscriptions", sort: "subscriptions", numeric: true, cell: row => h("button", {
                type: "button", onclick: () => showSubscriptions(row, context)}, number(row.subscriptions))},
            {key: "durable", label: "Expiry", sort: "expiry", cell: row => !row.durable ? "at disconnect" : row.expiry === null ? "never"
                : `${duration(row.expiry)} after disconnect`},
        ],
        actions: [
            {label: "Kick\u2026", needs: row => row.connected, run: kick},
            {label: "End\u2026", kind: "danger", run: async rows => {
                await ask({
                    title: "End sessions", submit: "End", danger: true,
                    text: h("p", null, "Their subscriptions and waiting messages are deleted: ",
                        rows.map((one, index) => [index ? ", " : "", name(one.client_id)]), "."),
                    run: async () => {
                        for (const one of rows) await send("DELETE", at("mqtt", "sessions", one.vhost, one.client_id));
                    },
                });
            }},
        ],
    });
}

async function showSubscriptions(row, context) {
    const path = `${at("mqtt", "sessions", row.vhost, row.client_id)}/subscriptions`;
    const found = await get(path, {signal: context.signal});
    const rows = found.map(one => {
        const tr = h("tr", null, h("th", {scope: "row"}, name(one.topic_filter)), h("td", {class: "numeric"}, number(one.qos)),
            h("td", null, [one.no_local ? "no local" : "", one.retain_as_published ? "retain as published" : ""].filter(Boolean).join(", ")),
            h("td", null, h("button", {type: "button", class: "danger", onclick: async () => {
                if (await tell(() => send("DELETE", `${path}/${at(one.topic_filter)}`), "Unsubscribed")) tr.remove();
            }}, "Unsubscribe")));
        return tr;
    });
    await ask({
        title: `Subscriptions of ${row.client_id}`, submit: "Done",
        text: rows.length ? h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Subscriptions"}, h("table", {class: "list"},
            h("thead", null, h("tr", null, h("th", {scope: "col"}, "Filter"), h("th", {scope: "col", class: "numeric"}, "QoS"),
                h("th", {scope: "col"}, "Options"), h("th", {scope: "col"}, h("span", {class: "unseen"}, "Actions")))),
            h("tbody", null, rows))) : h("p", {class: "quiet"}, "There are no subscriptions."),
    });
}
