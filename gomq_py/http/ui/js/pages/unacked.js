// Who holds messages without acknowledging them, and since when. Of one queue: each message too, and the way to give it
// back. Also a tab of the queue's own page.

import {at, get, send} from "../core/api.js";
import {ask} from "../core/dialog.js";
import {badge, h, name, nameLink} from "../core/dom.js";
import {duration, number} from "../core/format.js";
import {link} from "../core/router.js";
import {table} from "../core/table.js";

// Held for so long, a message is stuck rather than worked on: doctor's judgement is the same.
const LONG_S = 1800;

export const title = () => "Unacknowledged";

const age = seconds => seconds === null ? "" : seconds >= LONG_S ? badge(duration(seconds), "warn") : duration(seconds);
const tagOf = row => row.consumer_tag === null || row.consumer_tag === "Basic get" ? badge("basic.get") : name(row.consumer_tag);

export async function show(root, {vhost, name: queue}, context) {
    if (queue !== undefined) {
        root.append(h("h1", null, "Unacknowledged in ", nameLink(link("queues", vhost, queue), queue)));
        await showUnacked(root, {vhost, name: queue}, context);
        return;
    }
    const list = table({
        id: "unacked", caption: "Unacknowledged, by consumer", context, order: "oldest_seconds", reversed: true,
        empty: "There are no unacknowledged messages.", key: row => `${row.channel}\n${row.consumer_tag}\n${row.vhost}\n${row.queue}`,
        href: row => link("unacked", row.vhost, row.queue),
        load: () => get(context.vhost ? at("unacked", context.vhost) : "unacked", {signal: context.signal}),
        columns: [
            {key: "queue", label: "Queue", sort: "queue", cell: row => nameLink(link("unacked", row.vhost, row.queue), row.queue)},
            {key: "vhost", label: "Virtual host", sort: "vhost", cell: row => name(row.vhost)},
            {key: "tag", label: "Consumer", sort: "consumer_tag", cell: tagOf},
            {key: "count", label: "Unacked", sort: "count", numeric: true, cell: row => number(row.count)},
            {key: "prefetch", label: "Prefetch", sort: "prefetch_count", numeric: true, cell: row => row.prefetch_count || "no limit"},
            {key: "oldest", label: "Oldest", sort: "oldest_seconds", numeric: true, cell: row => age(row.oldest_seconds)},
            {key: "channel", label: "Channel", sort: "channel", cell: row => nameLink(link("channels", row.channel), row.channel)},
            {key: "user", label: "User", sort: "user", cell: row => name(row.user)},
        ],
    });
    root.append(h("h1", null, title()), list.element);
    await list.start();
}

/** The messages of one queue that somebody holds. */
export async function showUnacked(root, {vhost, name: queue}, context) {
    const list = table({
        id: "queue-unacked", caption: "Unacknowledged messages", context, order: "unacked_for_seconds", reversed: true,
        empty: "The queue has no unacknowledged messages.", key: row => `${row.channel_name}\n${row.delivery_tag}`,
        load: () => get(`${at("queues", vhost, queue)}/unacked`, {signal: context.signal}),
        columns: [
            {key: "tag", label: "Consumer", sort: "consumer_tag", cell: tagOf},
            {key: "delivery", label: "Delivery tag", sort: "delivery_tag", numeric: true, cell: row => number(row.delivery_tag)},
            {key: "since", label: "Held for", sort: "unacked_for_seconds", numeric: true, cell: row => age(row.unacked_for_seconds)},
            {key: "channel", label: "Channel", sort: "channel_name", cell: row => nameLink(link("channels", row.channel_name), row.channel_name)},
        ],
        actions: [{label: "Requeue\u2026", kind: "danger", run: async rows => {
            await ask({
                title: "Requeue messages", submit: "Requeue", danger: true,
                text: "The messages become ready again, and another consumer gets them. Their present consumer is not told and may still work on them, so they may be processed twice. "
                    + "Its later acknowledgements are ignored.",
                run: async () => {
                    for (const row of rows) {
                        await send("POST", `${at("unacked", vhost, queue)}/return`, {channel: row.channel_name, delivery_tag: row.delivery_tag});
                    }
                },
            });
            await list.refresh();
        }}],
    });
    root.append(list.element);
    await list.start();
}
