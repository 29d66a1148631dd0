// Queues: the list, and what can be done with many of them.

import {at, get, send} from "../core/api.js";
import {h, name} from "../core/dom.js";
import {ask} from "../core/dialog.js";
import {octets} from "../core/format.js";
import {link} from "../core/router.js";
import {table} from "../core/table.js";
import {argumentField, argumentsFrom, hintsOf} from "./hints.js";
import {ARGUMENTS_FIELD, NAME_FIELD, confirmed, count, each, features, policyLink, queueLink, speed, state, vhostField} from "./parts.js";

export const title = () => "Queues";

const rateOf = (row, key) => row.message_stats?.[`${key}_details`]?.rate ?? 0;

/** Columns of lists of queues; streams and other pages take some of them. */
export const COLUMNS = [
    {key: "name", label: "Name", sort: "name", cell: row => queueLink(row.vhost, row.name)},
    {key: "vhost", label: "Virtual host", sort: "vhost", cell: row => name(row.vhost)},
    {key: "type", label: "Type", sort: "type", cell: row => row.type},
    {key: "features", label: "Features", cell: features},
    {key: "policy", label: "Policy", cell: row => row.policy ? policyLink(row.vhost, row.policy) : ""},
    {key: "state", label: "State", sort: "state", cell: row => state(row.state)},
    {key: "ready", label: "Ready", sort: "messages_ready", numeric: true, early: true, cell: row => count(row.messages_ready)},
    {key: "unacked", label: "Unacked", sort: "messages_unacknowledged", numeric: true, cell: row => count(row.messages_unacknowledged)},
    {key: "total", label: "Total", sort: "messages", numeric: true, hidden: true, cell: row => count(row.messages)},
    {key: "growth", label: "Growth", sort: "messages_details.rate", numeric: true, title: "change of the number of messages per second",
        cell: row => growth(row.messages_details?.rate)},
    {key: "in", label: "In", sort: "message_stats.publish_details.rate", numeric: true, cell: row => speed(rateOf(row, "publish"))},
    {key: "out", label: "Out", sort: "message_stats.deliver_get_details.rate", numeric: true, cell: row => speed(rateOf(row, "deliver_get"))},
    {key: "ack", label: "Ack", sort: "message_stats.ack_details.rate", numeric: true, cell: row => speed(rateOf(row, "ack"))},
    {key: "redelivered", label: "Redelivered", sort: "message_stats.redeliver_details.rate", numeric: true, hidden: true,
        cell: row => speed(rateOf(row, "redeliver"))},
    {key: "consumers", label: "Consumers", sort: "consumers", numeric: true, early: true, cell: row => count(row.consumers)},
    {key: "bytes", label: "Bytes", sort: "message_bytes", numeric: true, hidden: true, cell: row => octets(row.message_bytes)},
    {key: "aside", label: "Set aside", sort: "messages_set_aside", numeric: true, hidden: true, cell: row => count(row.messages_set_aside)},
];

function growth(value) {
    if (!value || Math.abs(value) < 0.05) return h("span", {class: "zero"}, "0/s");
    return h("span", {class: value > 0 ? "grows" : "shrinks"}, `${value > 0 ? "+" : "\u2212"}${speedText(Math.abs(value))}`);
}

const speedText = value => `${value < 10 ? value.toFixed(1) : Math.round(value)}/s`;

export async function show(root, params, context) {
    const path = row => at("queues", row.vhost, row.name);
    const mayConfigure = row => context.session.may("configure", row.vhost, row.name);
    const list = table({
        id: "queues", caption: "Queues", context, order: "name", empty: "There are no queues.", columns: COLUMNS,
        key: row => `${row.vhost}\n${row.name}`, href: row => link("queues", row.vhost, row.name),
        load: query => get(context.vhost ? at("queues", context.vhost) : "queues", {signal: context.signal, query}),
        buttons: context.session.maySome("configure", context.vhost) ? [h("button", {type: "button", class: "primary",
            onclick: () => declare(context).then(done => done && list.refresh(), context.fail)}, "Declare\u2026")] : [],
        actions: [
            {label: "Pause", needs: row => mayConfigure(row) && row.state === "running", run: rows => each(rows, row => send("PUT", `${path(row)}/pause`), "Paused")},
            {label: "Resume", needs: row => mayConfigure(row) && row.state === "paused", run: rows => each(rows, row => send("PUT", `${path(row)}/resume`), "Resumed")},
            {label: "Purge\u2026", kind: "danger", needs: row => context.session.may("read", row.vhost, row.name) && row.type !== "stream", run: rows => confirmed("Purge queues",
                [`All ready messages of these ${rows.length} queues are dropped:`, names(rows)],
                () => each(rows, row => send("DELETE", `${path(row)}/contents`), "Purged"), {submit: "Purge", typed: "purge"})},
            {label: "Delete\u2026", kind: "danger", needs: mayConfigure, run: rows => confirmed("Delete queues", ["These queues, their messages and their bindings are deleted:", names(rows)],
                () => each(rows, row => send("DELETE", path(row)), "Deleted"), {typed: "delete"})},
        ],
    });
    root.append(h("h1", null, title()), list.element);
    await list.start();
}

const names = rows => h("ul", {class: "some"}, rows.map(row => h("li", null, name(row.name))));

/** Ask for a new queue or stream. */
export async function declare(context, type = "classic") {
    const [vhost, hints] = await Promise.all([vhostField(context), hintsOf("queue")]);
    const field = (argument, label, given) => argumentField(hints, argument, {label, ...given});
    const number = {type: "number", min: 0};
    return ask({
        title: "Declare a queue", submit: "Declare", fields: [
            vhost, NAME_FIELD,
            {name: "type", label: "Type", code: "x-queue-type", type: "select", of: "kinds", value: type,
                options: [["classic", "Classic"], ["quorum", "Quorum (a durable queue of this node)"], ["stream", "Stream"]]},
            {name: "durable", label: "Durable", type: "check", value: true, hint: "It is there after a restart."},
            {name: "auto_delete", label: "Auto-delete", type: "check", hint: "It is deleted when its last consumer ends.", kinds: ["classic"]},
            field("x-message-ttl", "Message TTL (ms)", number), field("x-max-length", "Maximum length (messages)", number),
            field("x-overflow", "Overflow", {type: "select", options: [["", "drop-head (default)"], "reject-publish", "reject-publish-dlx"]}),
            field("x-dead-letter-exchange", "Dead letter exchange"), field("x-dead-letter-routing-key", "Dead letter routing key"),
            field("x-delivery-limit", "Delivery limit", {type: "number"}), field("x-max-age", "Maximum age"),
            {...ARGUMENTS_FIELD, hints: hints.filter(one => one.name !== "x-queue-type")},
        ],
        run: async given => {
            const arguments_ = argumentsFrom(hints, given, given.type);
            if (given.type !== "classic") arguments_["x-queue-type"] = given.type;
            await send("PUT", at("queues", given.vhost, given.name), {
                durable: given.durable, auto_delete: given.auto_delete && given.type === "classic", arguments: arguments_});
        },
    });
}
