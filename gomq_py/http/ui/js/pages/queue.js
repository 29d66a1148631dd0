// One queue or stream.

import {at, get, send} from "../core/api.js";
import {curve, lineChart, rates} from "../core/chart.js";
import {badge, facts, h, name, panel, replace, visible} from "../core/dom.js";
import {tell} from "../core/dialog.js";
import {ago, duration, number, octets, rate, short, time} from "../core/format.js";
import {go, link} from "../core/router.js";
import {table} from "../core/table.js";
import {tabs} from "../core/tabs.js";
import {purge} from "../messages/purge.js";
import {
    argumentsList, askBinding, channelLink, confirmed, count, exchangeLink, features, figures, mayUnbind, plainTable, policyLink, rangeChoice, samplesQuery,
    state, unbind, vhostLink,
} from "./parts.js";

const EVERY_MS = 5000;
const FLOWS = [["publish", "In"], ["deliver", "Delivered"], ["deliver_no_ack", "Without ack"], ["get", "Got"], ["ack", "Acked"], ["redeliver", "Redelivered"]];

export const title = params => params.name;

export async function show(root, params, context) {
    const {vhost, name: queueName} = params;
    const path = at("queues", vhost, queueName);
    const head = h("div", {class: "head"});
    root.append(head, h("p", {class: "quiet"}, "in ", vhostLink(vhost)));
    const given = {vhost, name: queueName, queue: null, path};

    const load = async seconds => {
        given.queue = await get(path, {signal: context.signal, query: seconds ? samplesQuery(seconds) : {}});
        drawHead(head, given, context, load);
        return given.queue;
    };
    await load();
    const isStream = given.queue.type === "stream";
    await tabs(root, context, [
        {key: "overview", label: "Overview", show: (part, inner) => overview(part, inner, given, load)},
        {key: "consumers", label: "Consumers", show: (part, inner) => consumers(part, inner, given, load)},
        {key: "bindings", label: "Bindings", show: (part, inner) => bindings(part, inner, given)},
        {key: "arguments", label: "Arguments and policy", show: part => effective(part, given)},
        ...isStream ? [{key: "offsets", label: "Offsets", show: (part, inner) => offsets(part, inner, given)}] : [],
        ...isStream ? [] : [{key: "messages", label: "Messages", show: async (part, inner) => (await import("./messages.js")).showMessages(part, params, inner)}],
    ]);
}

function drawHead(head, {vhost, name: queueName, queue, path}, context, load) {
    const shown = JSON.stringify([queue.state, queue.messages_ready > 0]);
    if (head.dataset.shown === shown) return;
    head.dataset.shown = shown;
    const act = (label, work, done, kind) => h("button", {type: "button", class: kind, onclick: async () => {
        if (await tell(work, done)) await load().catch(context.fail);
    }}, label);
    const may = verb => context.session.may(verb, vhost, queueName);
    const mayConfigure = may("configure"), mayRead = may("read");
    replace(head, h("h1", null, name(queueName)), badge(queue.type), state(queue.state), h("span", {class: "grow"}),
        mayConfigure && queue.state === "running" ? act("Pause", () => send("PUT", `${path}/pause`), "Paused: no messages are delivered") : null,
        mayConfigure && queue.state === "paused" ? act("Resume", () => send("PUT", `${path}/resume`), "Resumed") : null,
        mayConfigure && queue.state === "stopped" ? act("Restart", () => send("PUT", `${path}/restart`), "Restarted") : null,
        queue.type === "stream" ? h("a", {class: "button", href: `${link("streams", vhost, queueName)}/timeline`}, "Timeline")
            : [h("a", {class: "button", href: link("unacked", vhost, queueName)}, "Unacked"),
                mayRead ? h("a", {class: "button", href: `${link("queues", vhost, queueName)}/move`}, "Move or copy\u2026") : null],
        mayRead && queue.type !== "stream" ? h("button", {type: "button", class: "danger", onclick: async () => {
            if (await purge(vhost, queueName, queue.messages_ready)) await load().catch(context.fail);
        }}, "Purge\u2026") : null,
        mayConfigure ? h("button", {type: "button", class: "danger", onclick: async () => {
            const text = ["The queue, its messages and its bindings are deleted."];
            if (await confirmed(`Delete ${queueName}`, text, () => send("DELETE", path), {typed: queueName})) go("#/queues");
        }}, "Delete\u2026") : null);
}

async function overview(root, context, given, load) {
    const range = rangeChoice(context, () => draw().catch(context.fail));
    const totals = h("div");
    const depth = lineChart({title: "Messages", unit: short});
    const flow = lineChart({title: "Messages per second", unit: rate});
    const more = h("div");
    root.append(h("div", {class: "row"}, h("span", {class: "grow"}), range.element), totals, h("div", {class: "grid"}, depth.element, flow.element), more);

    async function draw() {
        const seconds = range.seconds();
        const queue = await load(seconds);
        const stats = queue.message_stats;
        replace(totals, figures([
            ["ready", number(queue.messages_ready)], ["unacknowledged", number(queue.messages_unacknowledged)], ["total", number(queue.messages)],
            ["consumers", number(queue.consumers)], ["in", rate(stats.publish_details.rate)], ["out", rate(stats.deliver_get_details.rate)],
            ["message bytes", octets(queue.message_bytes)], queue.messages_set_aside ? ["set aside", number(queue.messages_set_aside)] : null,
        ]));
        depth.update([{label: "Ready", points: curve(queue.messages_ready_details)},
            {label: "Unacked", points: curve(queue.messages_unacknowledged_details)}], seconds);
        flow.update(FLOWS.map(([key, label]) => ({label, points: rates(stats[`${key}_details`])})), seconds);
        replace(more, panel("Details", facts([
            ["Features", features(queue)],
            ["Policy", queue.policy ? policyLink(queue.vhost, queue.policy) : "none"],
            ["Operator policy", queue.operator_policy ? policyLink(queue.vhost, queue.operator_policy, "operator-policies") : "none"],
            ["Bytes ready", octets(queue.message_bytes_ready)], ["Bytes unacknowledged", octets(queue.message_bytes_unacknowledged)],
            ["Published", number(stats.publish)], ["Delivered", number(stats.deliver_get)], ["Acknowledged", number(stats.ack)],
            ["Redelivered", number(stats.redeliver)],
            ["Exclusive to", queue.owner_pid_details?.name ? name(queue.owner_pid_details.name) : null],
            ["Single active consumer", queue.single_active_consumer_tag ? name(queue.single_active_consumer_tag) : null],
            ...groups(queue.message_groups),
            ["Set aside, by reason", queue.messages_set_aside ? argumentsList(queue.set_aside_reasons) : null],
        ])));
    }
    await context.every(EVERY_MS, draw);
}

/** What is out of the groups of a queue with x-message-group, and what waits for it. */
function groups(shown) {
    if (!shown) return [];
    return [
        ["Groups with unacknowledged messages", `${number(shown.groups_out)} with ${number(shown.messages_out)} messages`],
        ["Messages waiting in their group", `${number(shown.messages_waiting)} of ${number(shown.groups_waiting)} groups`],
        ["Longest wait", shown.messages_waiting ? duration(shown.longest_wait_s) : "none"],
        ["Deepest group", shown.deepest_group === null ? "none" : `${visible(shown.deepest_group)}: ${number(shown.deepest_group_messages)}`],
        ["Limit of waiting messages", shown.is_full ? "reached: further groups are not looked for" : null],
    ];
}

async function consumers(root, context, given, load) {
    const list = table({
        id: "queue-consumers", caption: "Consumers", context, order: "consumer_tag", empty: "There are no consumers.",
        key: row => `${row.channel_details.name}\n${row.consumer_tag}`, href: row => link("channels", row.channel_details.name),
        load: async () => (await load()).consumer_details,
        columns: [
            {key: "tag", label: "Tag", sort: "consumer_tag", cell: row => name(row.consumer_tag)},
            {key: "channel", label: "Channel", sort: "channel_details.name", cell: row => channelLink(row.channel_details.name)},
            {key: "user", label: "User", sort: "channel_details.user", cell: row => name(row.channel_details.user)},
            {key: "prefetch", label: "Prefetch", sort: "prefetch_count", numeric: true, cell: row => row.prefetch_count || "no limit"},
            {key: "ack", label: "Acks", cell: row => row.ack_required ? "yes" : "no"},
            {key: "exclusive", label: "Exclusive", cell: row => row.exclusive ? "yes" : ""},
            {key: "arguments", label: "Arguments", cell: row => argumentsList(row.arguments, "")},
        ],
        actions: [{label: "Cancel\u2026", kind: "danger", run: rows => confirmed("Cancel consumers", "Their clients get basic.cancel.", async () => {
            for (const row of rows) {
                const {connection_name: connection, number: channel} = row.channel_details;
                await send("DELETE", at("consumers", given.vhost, connection, channel, row.consumer_tag));
            }
        }, {submit: "Cancel them"})}],
    });
    root.append(list.element);
    await list.start();
}

async function bindings(root, context, given) {
    const list = table({
        id: "queue-bindings", caption: "Bindings", context, order: "source", empty: "No bindings.",
        key: row => `${row.source}\n${row.properties_key}`, load: query => get(`${given.path}/bindings`, {signal: context.signal, query}),
        columns: [
            {key: "source", label: "From exchange", sort: "source", cell: row => exchangeLink(row.vhost, row.source)},
            {key: "key", label: "Routing key", sort: "routing_key", cell: row => name(row.routing_key)},
            {key: "arguments", label: "Arguments", cell: row => argumentsList(row.arguments, "")},
        ],
        buttons: context.session.may("write", given.vhost, given.name) ? [h("button", {type: "button", class: "primary", onclick: async () => {
            if (await askBinding({vhost: given.vhost, destination: given.name, kind: "q"})) await list.refresh();
        }}, "Bind\u2026")] : [],
        actions: [{label: "Unbind", kind: "danger", needs: row => mayUnbind(context.session, row), run: async rows => {
            for (const row of rows) await tell(() => unbind(row));
        }}],
    });
    root.append(list.element);
    await list.start();
}

// What is in force, and where each value comes from.
async function effective(root, {queue}) {
    const policy = queue.effective_policy_definition ?? {};
    const own = queue.arguments ?? {};
    const rows = [...Object.entries(own).map(([key, value]) => [key, value, "argument"]),
        ...Object.entries(policy).map(([key, value]) => [key, value, `x-${key}` in own ? "policy; the argument may also apply" : "policy"])];
    root.append(h("div", {class: "grid"}, panel("Effective settings", rows.length ? h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Effective settings"}, h("table", null,
        h("thead", null, h("tr", null, ["Setting", "Value", "Source"].map(one => h("th", {scope: "col"}, one)))),
        h("tbody", null, rows.map(([key, value, from]) => h("tr", null, h("th", {scope: "row"}, name(key)), h("td", null, name(JSON.stringify(value))), h("td", null, from))))))
        : h("p", {class: "quiet"}, "No arguments and no policies: defaults apply.")),
    panel("Policies", facts([
        ["Policy", queue.policy ? policyLink(queue.vhost, queue.policy) : "none"],
        ["Operator policy", queue.operator_policy ? policyLink(queue.vhost, queue.operator_policy, "operator-policies") : "none"],
    ]), h("p", {class: "quiet"}, "If argument, policy and operator policy give a number for the same setting, the lowest one applies."))));
}

async function offsets(root, context, {vhost, name: stream}) {
    const place = h("div");
    root.append(place);
    await context.every(EVERY_MS, async () => {
        const path = at("streams", vhost, stream);
        const {signal} = context;
        const [whole, {segments}] = await Promise.all([get(path, {signal}), get(`${path}/segments`, {signal})]);
        const readers = whole.consumers ?? [];
        const stored = whole.offsets ?? [];
        replace(place, panel("Offsets", facts([["First", number(whole.first_offset)], ["Next", number(whole.next_offset)],
            ["On disk before", number(whole.synced_offset)], ["Epoch", h("code", null, whole.epoch)], ["Segments", number(whole.segments)]])),
        panel("Readers", readers.length ? plainTable("Readers", ["Consumer", "Offset", "Lag"], readers.map(
            one => [name(one.consumer_tag), number(one.offset), count(one.lag)])) : h("p", {class: "quiet"}, "None.")),
        stored.length ? panel("Stored offsets", plainTable("Stored offsets", ["Consumer", "Offset", "Stored"], stored.map(
            one => [name(one.consumer_tag), number(one.offset), time(one.updated_ms)]))) : null,
        panel("Segments", plainTable("Segments", ["Number", "From", "To", "Messages", "Bytes", "First", "Age"], segments.map(one => [
            number(one.number), number(one.first_offset), number(one.next_offset - 1), number(one.count), octets(one.bytes),
            time(one.first_timestamp_ms || null), one.first_timestamp_ms ? ago(one.first_timestamp_ms) : "\u2013"]))));
    });
}
