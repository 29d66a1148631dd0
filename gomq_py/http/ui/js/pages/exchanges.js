// Exchanges: the list.

import {at, get, send} from "../core/api.js";
import {h, name} from "../core/dom.js";
import {ask} from "../core/dialog.js";
import {link} from "../core/router.js";
import {table} from "../core/table.js";
import {argumentField, argumentsFrom, hintsOf} from "./hints.js";
import {ARGUMENTS_FIELD, NAME_FIELD, confirmed, each, exchangeLink, features, policyLink, speed, vhostField} from "./parts.js";

export const title = () => "Exchanges";

export async function show(root, params, context) {
    const mayDelete = row => row.name && !row.name.startsWith("amq.") && context.session.may("configure", row.vhost, row.name);
    const list = table({
        id: "exchanges", caption: "Exchanges", context, order: "name", empty: "There are no exchanges.",
        key: row => `${row.vhost}\n${row.name}`, href: row => link("exchanges", row.vhost, row.name || "amq.default"),
        load: query => get(context.vhost ? at("exchanges", context.vhost) : "exchanges", {signal: context.signal, query}),
        columns: [
            {key: "name", label: "Name", sort: "name", cell: row => exchangeLink(row.vhost, row.name)},
            {key: "vhost", label: "Virtual host", sort: "vhost", cell: row => name(row.vhost)},
            {key: "type", label: "Type", sort: "type", cell: row => row.type},
            {key: "features", label: "Features", cell: features},
            {key: "policy", label: "Policy", cell: row => row.policy ? policyLink(row.vhost, row.policy) : ""},
            {key: "in", label: "In", sort: "message_stats.publish_in_details.rate", numeric: true,
                cell: row => speed(row.message_stats?.publish_in_details?.rate)},
            {key: "out", label: "Out", sort: "message_stats.publish_out_details.rate", numeric: true,
                cell: row => speed(row.message_stats?.publish_out_details?.rate)},
        ],
        buttons: context.session.maySome("configure", context.vhost) ? [h("button", {type: "button", class: "primary",
            onclick: () => declare(context).then(done => done && list.refresh(), context.fail)}, "Declare\u2026")] : [],
        actions: [{label: "Delete\u2026", kind: "danger", needs: mayDelete, run: rows => confirmed("Delete exchanges",
            ["These exchanges and their bindings are deleted:", h("ul", {class: "some"}, rows.map(row => h("li", null, name(row.name))))],
            () => each(rows, row => send("DELETE", at("exchanges", row.vhost, row.name)), "Deleted"), {typed: "delete"})}],
    });
    root.append(h("h1", null, title()), list.element);
    await list.start();
}

async function declare(context) {
    const [{exchange_types: types}, vhost, hints] = await Promise.all([get("overview", {signal: context.signal}), vhostField(context), hintsOf("exchange")]);
    return ask({
        title: "Declare an exchange", submit: "Declare", fields: [
            vhost, NAME_FIELD, {name: "type", label: "Type", type: "select", of: "kinds", options: types.map(one => one.name), value: "topic"},
            argumentField(hints, "alternate-exchange", {label: "Alternate exchange"}),
            argumentField(hints, "x-delayed-type", {label: "Delayed type", type: "select", options: ["topic", "direct", "fanout", "headers"]}),
            {name: "durable", label: "Durable", type: "check", value: true, hint: "It is there after a restart."},
            {name: "auto_delete", label: "Auto-delete", type: "check", hint: "It is deleted with its last binding."},
            {name: "internal", label: "Internal", type: "check", hint: "Only exchanges publish to it."},
            {...ARGUMENTS_FIELD, hints},
        ],
        run: given => send("PUT", at("exchanges", given.vhost, given.name), {type: given.type, durable: given.durable, auto_delete: given.auto_delete,
            internal: given.internal, arguments: argumentsFrom(hints, given, given.type)}),
    });
}
