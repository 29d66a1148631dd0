// Queues: the list.

import {at, get} from "../core/api.js";
import {badge, h, nameLink, name} from "../core/dom.js";
import {number, octets, rate} from "../core/format.js";
import {link} from "../core/router.js";
import {table} from "../core/table.js";

export const title = () => "Queues";

export async function show(root, params, context) {
    const list = table({
        id: "queues", caption: "Queues", context, order: "name", empty: "There are no queues.",
        key: row => `${row.vhost}\n${row.name}`,
        href: row => link("queues", row.vhost, row.name),
        load: query => get(context.vhost ? at("queues", context.vhost) : "queues", {signal: context.signal, query}),
        columns: [
            {key: "name", label: "Name", sort: "name", cell: row => nameLink(link("queues", row.vhost, row.name), row.name)},
            {key: "vhost", label: "Virtual host", sort: "vhost", cell: row => name(row.vhost)},
            {key: "type", label: "Type", sort: "type", cell: row => row.type},
            {key: "state", label: "State", sort: "state", cell: row => badge(row.state)},
            {key: "ready", label: "Ready", sort: "messages_ready", numeric: true, cell: row => number(row.messages_ready)},
            {key: "unacked", label: "Unacked", sort: "messages_unacknowledged", numeric: true,
                cell: row => number(row.messages_unacknowledged)},
            {key: "in", label: "In", sort: "message_stats.publish_details.rate", numeric: true,
                cell: row => rate(row.message_stats?.publish_details?.rate)},
            {key: "out", label: "Out", sort: "message_stats.deliver_get_details.rate", numeric: true,
                cell: row => rate(row.message_stats?.deliver_get_details?.rate)},
            {key: "bytes", label: "Octets", sort: "message_bytes", numeric: true, hidden: true,
                cell: row => octets(row.message_bytes)},
        ],
    });
    root.append(h("h1", null, "Queues"), list.element);
    await list.start();
}
