// Connections: the list.

import {at, get} from "../core/api.js";
import {h, name} from "../core/dom.js";
import {ago, octetRate, octets, time} from "../core/format.js";
import {link} from "../core/router.js";
import {table} from "../core/table.js";
import {closeConnections, connectionLink, count, speed, state, userLink} from "./parts.js";

export const title = () => "Connections";

const client = row => [row.client_properties?.product, row.client_properties?.version].filter(one => typeof one === "string").join(" ");

export async function show(root, params, context) {
    const list = table({
        id: "connections", caption: "Connections", context, order: "name", empty: "There are no connections.",
        href: row => link("connections", row.name), key: row => row.name,
        load: query => get(context.vhost ? at("vhosts", context.vhost, "connections") : "connections", {signal: context.signal, query}),
        columns: [
            {key: "name", label: "Name", sort: "name", cell: row => connectionLink(row.name)},
            {key: "given", label: "Client-provided name", sort: "user_provided_name", cell: row => row.user_provided_name ? name(row.user_provided_name) : ""},
            {key: "vhost", label: "Virtual host", sort: "vhost", cell: row => name(row.vhost)},
            {key: "user", label: "User", sort: "user", cell: row => userLink(context.session, row.user)},
            {key: "state", label: "State", sort: "state", cell: row => state(row.state)},
            {key: "protocol", label: "Protocol", sort: "protocol", cell: row => row.protocol},
            {key: "tls", label: "TLS", sort: "ssl", cell: row => row.ssl ? row.ssl_protocol ?? "yes" : ""},
            {key: "client", label: "Client", cell: row => name(client(row))},
            {key: "channels", label: "Channels", sort: "channels", numeric: true, cell: row => count(row.channels)},
            {key: "from", label: "From client", sort: "recv_oct_details.rate", numeric: true, cell: row => speed(row.recv_oct_details?.rate, octetRate)},
            {key: "to", label: "To client", sort: "send_oct_details.rate", numeric: true, cell: row => speed(row.send_oct_details?.rate, octetRate)},
            {key: "received", label: "Received", sort: "recv_oct", numeric: true, hidden: true, cell: row => octets(row.recv_oct)},
            {key: "sent", label: "Sent", sort: "send_oct", numeric: true, hidden: true, cell: row => octets(row.send_oct)},
            {key: "since", label: "Since", sort: "connected_at", cell: row => h("span", {title: time(row.connected_at)}, ago(row.connected_at))},
            {key: "heartbeat", label: "Heartbeat", sort: "timeout", numeric: true, hidden: true, cell: row => `${row.timeout} s`},
        ],
        actions: [{label: "Close\u2026", kind: "danger", run: rows => closeConnections(rows.map(row => row.name))}],
    });
    root.append(h("h1", null, title()), list.element);
    await list.start();
}
