// Nodes: the one there is.

import {at, get, send} from "../core/api.js";
import {curve, lineChart, rates} from "../core/chart.js";
import {badge, facts, h, name, panel, replace} from "../core/dom.js";
import {tell} from "../core/dialog.js";
import {duration, number, octets, percent, rate} from "../core/format.js";
import {argumentsList, figures, rangeChoice, samplesQuery} from "./parts.js";

const EVERY_MS = 5000;

export const title = () => "Nodes";

export async function show(root, params, context) {
    const range = rangeChoice(context, () => draw().catch(context.fail));
    const place = h("div", {class: "page"});
    const charts = new Map();
    root.append(h("div", {class: "head"}, h("h1", null, title()), h("span", {class: "grow"}), range.element), place);

    async function draw() {
        const seconds = range.seconds();
        const nodes = await get("nodes", {signal: context.signal, query: samplesQuery(seconds)});
        for (const node of nodes) {
            if (!charts.has(node.name)) charts.set(node.name, view(node, place, context));
            charts.get(node.name)(node, seconds);
        }
    }
    await context.every(EVERY_MS, draw);
}

function view(node, place, context) {
    const memory = lineChart({title: "Memory", unit: octets});
    const processor = lineChart({title: "Processor", unit: percent});
    const disk = lineChart({title: "Free disk", unit: octets});
    const sockets = lineChart({title: "Descriptors and connections", unit: number});
    const churn = lineChart({title: "Opened and closed per second", unit: rate});
    const head = h("div"), totals = h("div"), more = h("div", {class: "grid"});
    place.append(head, totals, h("div", {class: "grid"}, memory.element, processor.element, disk.element, sockets.element, churn.element), more);

    return (one, seconds) => {
        replace(head, h("div", {class: "head"}, h("h2", null, name(one.name)), one.running ? badge("running", "good") : badge("down", "bad"),
            one.mem_alarm ? badge("memory alarm", "bad") : null, one.disk_free_alarm ? badge("disk alarm", "bad") : null, h("span", {class: "grow"}),
            context.session.can("administrator") ? h("button", {type: "button", title: "Collect garbage and return memory to the system; the broker pauses for some milliseconds",
                onclick: () => tell(() => send("POST", `nodes/${at(one.name)}/gc_collect`), "Collected")}, "Collect garbage") : null));
        replace(totals, figures([["up", duration(one.uptime / 1000)], ["memory", octets(one.mem_used)], ["memory limit", octets(one.mem_limit)],
            ["disk free", octets(one.disk_free)], ["alarm below", octets(one.disk_free_limit)], ["descriptors", `${number(one.fd_used)} of ${number(one.fd_total)}`],
            ["connections", number(one.sockets_used)], ["processors", number(one.processors)]]));
        memory.update([{label: "Used", points: curve(one.mem_used_details)}], seconds);
        processor.update([{label: "User", points: rates(one.cpu_user_time_details)}, {label: "System", points: rates(one.cpu_sys_time_details)}], seconds);
        disk.update([{label: "Free", points: curve(one.disk_free_details)}], seconds);
        sockets.update([{label: "Descriptors", points: curve(one.fd_used_details)}, {label: "Connections", points: curve(one.sockets_used_details)}], seconds);
        churn.update([["connection_created", "Connections opened"], ["connection_closed", "Connections closed"],
            ["channel_created", "Channels opened"], ["channel_closed", "Channels closed"],
            ["queue_created", "Queues created"], ["queue_deleted", "Queues deleted"]].map(([key, label]) => ({label, points: rates(one[`${key}_details`])})), seconds);
        const failed = Object.keys(one.failed_jobs ?? {}).length;
        replace(more, panel("Details", facts([["Process", one.os_pid], ["Data folder", name(one.db_dir)], ["Log", name(one.log_files.join(", "))],
            ["Garbage collections", number(one.gc_num)]])),
        panel("Failed background jobs", failed ? argumentsList(one.failed_jobs) : h("p", {class: "quiet"}, "None since the start.")));
    };
}
