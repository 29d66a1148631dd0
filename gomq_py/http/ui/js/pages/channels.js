// Channels: the list.

import {at, get} from "../core/api.js";
import {badge, h, name} from "../core/dom.js";
import {link} from "../core/router.js";
import {table} from "../core/table.js";
import {channelLink, count, speed, state, userLink} from "./parts.js";

export const title = () => "Channels";

export async function show(root, params, context) {
    const list = table({
        id: "channels", caption: "Channels", context, order: "name", empty: "There are no channels.", href: row => link("channels", row.name),
        load: query => get(context.vhost ? at("vhosts", context.vhost, "channels") : "channels", {signal: context.signal, query}),
        columns: [
            {key: "name", label: "Name", sort: "name", cell: row => channelLink(row.name)},
            {key: "vhost", label: "Virtual host", sort: "vhost", cell: row => name(row.vhost)},
            {key: "user", label: "User", sort: "user", cell: row => userLink(context.session, row.user)},
            {key: "mode", label: "Mode", cell: row => [row.confirm ? badge("C", "quiet", "confirms") : null, row.transactional ? badge("T", "quiet", "transactions") : null]},
            {key: "state", label: "State", cell: row => state(row.state)},
            {key: "consumers", label: "Consumers", sort: "consumer_count", numeric: true, cell: row => count(row.consumer_count)},
            {key: "prefetch", label: "Prefetch", sort: "prefetch_count", numeric: true, cell: row => row.prefetch_count || "no limit"},
            {key: "unacked", label: "Unacked", sort: "messages_unacknowledged", numeric: true, cell: row => count(row.messages_unacknowledged)},
            {key: "unconfirmed", label: "Unconfirmed", sort: "messages_unconfirmed", numeric: true, cell: row => count(row.messages_unconfirmed)},
            {key: "publish", label: "Publish", sort: "message_stats.publish_details.rate", numeric: true, cell: row => speed(row.message_stats?.publish_details?.rate)},
            {key: "confirm", label: "Confirm", sort: "message_stats.confirm_details.rate", numeric: true, hidden: true,
                cell: row => speed(row.message_stats?.confirm_details?.rate)},
            {key: "deliver", label: "Deliver", sort: "message_stats.deliver_get_details.rate", numeric: true, cell: row => speed(row.message_stats?.deliver_get_details?.rate)},
        ],
    });
    root.append(h("h1", null, title()), list.element);
    await list.start();
}
