// Consumers: the list.

import {at, get, send} from "../core/api.js";
import {h, name} from "../core/dom.js";
import {link} from "../core/router.js";
import {table} from "../core/table.js";
import {argumentsList, channelLink, confirmed, each, queueLink} from "./parts.js";

export const title = () => "Consumers";

export async function show(root, params, context) {
    const list = table({
        id: "consumers", caption: "Consumers", context, order: "queue.name", empty: "There are no consumers.",
        key: row => `${row.channel_details.name}\n${row.consumer_tag}`, href: row => link("channels", row.channel_details.name),
        load: query => get(context.vhost ? at("consumers", context.vhost) : "consumers", {signal: context.signal, query}),
        columns: [
            {key: "queue", label: "Queue", sort: "queue.name", cell: row => queueLink(row.queue.vhost, row.queue.name)},
            {key: "vhost", label: "Virtual host", sort: "queue.vhost", cell: row => name(row.queue.vhost)},
            {key: "tag", label: "Tag", sort: "consumer_tag", cell: row => name(row.consumer_tag)},
            {key: "channel", label: "Channel", sort: "channel_details.name", cell: row => channelLink(row.channel_details.name)},
            {key: "user", label: "User", sort: "channel_details.user", cell: row => name(row.channel_details.user)},
            {key: "prefetch", label: "Prefetch", sort: "prefetch_count", numeric: true, cell: row => row.prefetch_count || "no limit"},
            {key: "ack", label: "Acks", sort: "ack_required", cell: row => row.ack_required ? "yes" : "no"},
            {key: "exclusive", label: "Exclusive", sort: "exclusive", cell: row => row.exclusive ? "yes" : ""},
            {key: "arguments", label: "Arguments", hidden: true, cell: row => argumentsList(row.arguments, "")},
        ],
        actions: [{label: "Cancel\u2026", kind: "danger", run: rows => confirmed("Cancel consumers", "Their clients get basic.cancel.", () => each(rows, row => send("DELETE",
            at("consumers", row.queue.vhost, row.channel_details.connection_name, row.channel_details.number, row.consumer_tag)), "Cancelled"),
        {submit: "Cancel them"})}],
    });
    root.append(h("h1", null, title()), list.element);
    await list.start();
}
