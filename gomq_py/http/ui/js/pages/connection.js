// One connection.

import {at, get} from "../core/api.js";
import {lineChart, rates} from "../core/chart.js";
import {facts, h, name, panel, replace} from "../core/dom.js";
import {ago, number, octetRate, octets, time} from "../core/format.js";
import {go, link} from "../core/router.js";
import {table} from "../core/table.js";
import {argumentsList, channelLink, closeConnections, count, rangeChoice, samplesQuery, speed, state, userLink, vhostLink} from "./parts.js";

const EVERY_MS = 5000;

export const title = params => params.name;

export async function show(root, params, context) {
    const path = at("connections", params.name);
    const range = rangeChoice(context, () => draw().catch(context.fail));
    const mark = h("span");
    const data = lineChart({title: "Data", unit: octetRate});
    const place = h("div", {class: "grid"});
    root.append(h("div", {class: "head"}, h("h1", null, name(params.name)), mark, h("span", {class: "grow"}), range.element,
        h("button", {type: "button", class: "danger", onclick: async () => {
            if (await closeConnections([params.name])) go("#/connections");
        }}, "Close\u2026")), place, data.element);

    async function draw() {
        const seconds = range.seconds();
        const one = await get(path, {signal: context.signal, query: samplesQuery(seconds)});
        replace(mark, state(one.state));
        data.update([{label: "From client", points: rates(one.recv_oct_details)}, {label: "To client", points: rates(one.send_oct_details)}], seconds);
        replace(place, panel("Details", facts([
            ["User", userLink(context.session, one.user)], ["Virtual host", vhostLink(one.vhost)], ["Protocol", one.protocol],
            ["Client id", one.client_id === undefined ? null : name(one.client_id)],
            ["Since", `${time(one.connected_at)} (${ago(one.connected_at)})`], ["From", `${one.peer_host}:${one.peer_port}`], ["To", `${one.host}:${one.port}`],
            ["Login", one.auth_mechanism], ["Heartbeat", one.timeout ? `${one.timeout} s` : "none"], ["Frame max", octets(one.frame_max)],
            ["Channels", `${number(one.channels)} of ${number(one.channel_max)}`],
            ["TLS", one.ssl ? `${one.ssl_protocol ?? ""} ${one.ssl_cipher ?? ""}` : "no"], ["Certificate of", one.peer_cert_subject ? name(one.peer_cert_subject) : null],
            ["Received", octets(one.recv_oct)], ["Sent", octets(one.send_oct)],
        ])), panel("Client properties", argumentsList(one.client_properties)));
    }
    await context.every(EVERY_MS, draw);

    const list = table({
        id: "connection-channels", caption: "Channels", context, order: "number", empty: "No channels.", key: row => row.name,
        href: row => link("channels", row.name), load: query => get(`${path}/channels`, {signal: context.signal, query}),
        columns: [
            {key: "name", label: "Channel", sort: "number", cell: row => channelLink(row.name)},
            {key: "state", label: "State", cell: row => state(row.state)},
            {key: "consumers", label: "Consumers", sort: "consumer_count", numeric: true, cell: row => count(row.consumer_count)},
            {key: "unacked", label: "Unacked", sort: "messages_unacknowledged", numeric: true, cell: row => count(row.messages_unacknowledged)},
            {key: "publish", label: "Publish", numeric: true, cell: row => speed(row.message_stats?.publish_details?.rate)},
            {key: "deliver", label: "Deliver", numeric: true, cell: row => speed(row.message_stats?.deliver_get_details?.rate)},
        ],
    });
    root.append(panel("Channels", list.element));
    await list.start();
}
