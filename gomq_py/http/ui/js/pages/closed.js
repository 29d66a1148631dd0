// Why connections and channels ended lately.

import {get} from "../core/api.js";
import {h, name} from "../core/dom.js";
import {ago, duration, time} from "../core/format.js";
import {table} from "../core/table.js";
import {userLink} from "./parts.js";

export const title = () => "Closed lately";

export async function show(root, params, context) {
    const list = table({
        id: "closed", caption: "Closed lately", context, order: "number", reversed: true, empty: "None since the broker's start.",
        key: row => `${row.what}${row.number}`, text: row => [row.name, row.user, row.vhost, row.reason, row.user_provided_name].join("\n"),
        load: async () => (await get("closed", {signal: context.signal})).filter(row => !context.vhost || row.vhost === context.vhost),
        columns: [
            {key: "when", label: "When", sort: "number", cell: row => h("span", {title: time(row.closed_at)}, `${ago(row.closed_at)} ago`)},
            {key: "what", label: "What", sort: "what", cell: row => row.what === "channel" ? `channel ${row.channel}` : "connection"},
            {key: "name", label: "Name", sort: "name", cell: row => name(row.name)},
            {key: "given", label: "Client-provided name", sort: "user_provided_name", cell: row => row.user_provided_name ? name(row.user_provided_name) : ""},
            {key: "user", label: "User", sort: "user", cell: row => userLink(context.session, row.user)},
            {key: "vhost", label: "Virtual host", sort: "vhost", cell: row => name(row.vhost)},
            {key: "reason", label: "Why", sort: "reason", cell: row => h("div", {class: "wrapping"}, name(row.reason))},
            {key: "lasted", label: "Lasted", numeric: true, value: row => row.connected_at ? row.closed_at - row.connected_at : 0,
                cell: row => row.connected_at ? duration((row.closed_at - row.connected_at) / 1000) : ""},
        ],
    });
    root.append(h("h1", null, title()), h("p", {class: "quiet"}, "The connections that ended last, and the channels that the broker closed because of an error."), list.element);
    await list.start();
}
