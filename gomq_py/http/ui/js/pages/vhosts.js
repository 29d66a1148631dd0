// Virtual hosts: the list.

import {at, get, send} from "../core/api.js";
import {badge, h, name} from "../core/dom.js";
import {ask} from "../core/dialog.js";
import {octetRate} from "../core/format.js";
import {link} from "../core/router.js";
import {table} from "../core/table.js";
import {NAME_FIELD, confirmed, count, speed, state, vhostLink} from "./parts.js";

export const title = () => "Virtual hosts";

export async function show(root, params, context) {
    const isAdministrator = context.session.can("administrator");
    const list = table({
        id: "vhosts", caption: "Virtual hosts", context, order: "name", empty: "You have permissions in no virtual host.", href: row => link("vhosts", row.name), text: row => row.name,
        load: query => get("vhosts", {signal: context.signal, query}),
        columns: [
            {key: "name", label: "Name", sort: "name", cell: row => vhostLink(row.name)},
            {key: "description", label: "Description", sort: "description", cell: row => name(row.description ?? "")},
            {key: "tags", label: "Tags", cell: row => row.tags.map(tag => [badge(tag, "quiet"), " "])},
            {key: "type", label: "Default type", sort: "default_queue_type", cell: row => row.default_queue_type},
            {key: "state", label: "State", cell: row => [...new Set(Object.values(row.cluster_state))].map(state)},
            {key: "ready", label: "Ready", sort: "messages_ready", numeric: true, cell: row => count(row.messages_ready)},
            {key: "unacked", label: "Unacked", sort: "messages_unacknowledged", numeric: true, cell: row => count(row.messages_unacknowledged)},
            {key: "in", label: "Publish", numeric: true, cell: row => speed(row.message_stats?.publish_details?.rate)},
            {key: "out", label: "Deliver", numeric: true, cell: row => speed(row.message_stats?.deliver_get_details?.rate)},
            {key: "received", label: "From clients", numeric: true, cell: row => speed(row.recv_oct_details?.rate, octetRate)},
            {key: "sent", label: "To clients", numeric: true, cell: row => speed(row.send_oct_details?.rate, octetRate)},
            {key: "protected", label: "Protected", cell: row => row.protected_from_deletion ? badge("protected", "good") : ""},
        ],
        buttons: isAdministrator ? [h("button", {type: "button", class: "primary", onclick: async () => {
            const done = await ask({title: "Add a virtual host", submit: "Add", fields: [NAME_FIELD, {name: "description", label: "Description"},
                {name: "tags", label: "Tags, with commas between them"}, {name: "default_queue_type", label: "Default queue type", type: "select",
                    options: ["classic", "quorum", "stream"]}],
            run: ({name: vhost, ...rest}) => send("PUT", at("vhosts", vhost), rest)});
            if (done) await list.refresh();
        }}, "Add\u2026")] : [],
        actions: isAdministrator ? [{label: "Delete\u2026", kind: "danger", needs: row => !row.protected_from_deletion, run: rows => confirmed("Delete virtual hosts",
            ["These virtual hosts are deleted, with everything in them:", h("ul", {class: "some"}, rows.map(row => h("li", null, name(row.name))))], async () => {
                for (const row of rows) await send("DELETE", at("vhosts", row.name));
            }, {typed: "delete"})}] : null,
    });
    root.append(h("h1", null, title()), list.element);
    await list.start();
}
