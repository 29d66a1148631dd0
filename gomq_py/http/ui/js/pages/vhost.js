// One virtual host: figures, permissions, limits.

import {at, get, send} from "../core/api.js";
import {curve, lineChart, rates} from "../core/chart.js";
import {badge, h, name, replace} from "../core/dom.js";
import {ask, tell} from "../core/dialog.js";
import {number, octetRate, rate, short} from "../core/format.js";
import {go} from "../core/router.js";
import {confirmed, figures, limitsPanel, permissionsPanel, rangeChoice, samplesQuery} from "./parts.js";

const EVERY_MS = 5000;

export const title = params => params.name;

export async function show(root, params, context) {
    const path = at("vhosts", params.name);
    const isAdministrator = context.session.can("administrator");
    const range = rangeChoice(context, () => draw().catch(context.fail));
    const mark = h("span", {class: "row"}), totals = h("div"), rights = h("div", {class: "page"});
    const buttons = h("span", {class: "row"});
    const depth = lineChart({title: "Messages", unit: short});
    const flow = lineChart({title: "Messages per second", unit: rate});
    const data = lineChart({title: "Data", unit: octetRate});
    let shown = "";
    root.append(h("div", {class: "head"}, h("h1", null, name(params.name)), mark, h("span", {class: "grow"}), range.element, buttons),
        totals, h("div", {class: "grid"}, depth.element, flow.element, data.element), rights);

    async function draw() {
        const seconds = range.seconds();
        const one = await get(path, {signal: context.signal, query: samplesQuery(seconds)});
        const stats = one.message_stats;
        replace(totals, figures([["ready", number(one.messages_ready)], ["unacknowledged", number(one.messages_unacknowledged)],
            ["published", rate(stats.publish_details.rate)], ["delivered", rate(stats.deliver_get_details.rate)]]));
        depth.update([{label: "Ready", points: curve(one.messages_ready_details)}, {label: "Unacked", points: curve(one.messages_unacknowledged_details)}], seconds);
        flow.update([["publish", "Publish"], ["deliver_get", "Deliver"], ["ack", "Acknowledge"], ["redeliver", "Redeliver"]].map(
            ([key, label]) => ({label, points: rates(stats[`${key}_details`])})), seconds);
        data.update([{label: "From clients", points: rates(one.recv_oct_details)}, {label: "To clients", points: rates(one.send_oct_details)}], seconds);
        const state = JSON.stringify([one.protected_from_deletion, one.description, one.tags, one.default_queue_type]);
        if (state === shown) return;
        shown = state;
        replace(mark, one.tags.map(tag => badge(tag, "quiet")), one.protected_from_deletion ? badge("protected", "good") : null,
            h("span", {class: "quiet"}, name(one.description ?? "")));
        if (isAdministrator) drawButtons(one);
    }

    function drawButtons(one) {
        replace(buttons, h("button", {type: "button", onclick: async () => {
            const done = await ask({title: "Change", submit: "Change", fields: [{name: "description", label: "Description", value: one.description ?? ""},
                {name: "tags", label: "Tags, with commas between them", value: one.tags.join(",")},
                {name: "default_queue_type", label: "Default queue type", type: "select", options: ["classic", "quorum", "stream"], value: one.default_queue_type}],
            run: given => send("PUT", path, given)});
            if (done) await draw().catch(context.fail);
        }}, "Change\u2026"), h("button", {type: "button", onclick: async () => {
            const method = one.protected_from_deletion ? "DELETE" : "POST";
            if (await tell(() => send(method, `${path}/deletion/protection`))) await draw().catch(context.fail);
        }}, one.protected_from_deletion ? "Unprotect" : "Protect"),
        one.protected_from_deletion ? null : h("button", {type: "button", class: "danger", onclick: async () => {
            const text = "The virtual host is deleted with its exchanges, queues, messages and permissions; its connections are closed.";
            if (await confirmed(`Delete ${params.name}`, text, () => send("DELETE", path), {typed: params.name})) go("#/vhosts");
        }}, "Delete\u2026"));
    }

    async function drawRights() {
        const {signal} = context;
        const [limits, rows, topics] = await Promise.all([get(at("vhost-limits", params.name), {signal}),
            isAdministrator ? get(`${path}/permissions`, {signal}) : [], isAdministrator ? get(`${path}/topic-permissions`, {signal}) : []]);
        replace(rights, isAdministrator ? await permissionsPanel({vhost: params.name, rows, topics, context, changed: drawRights}) : null,
            limitsPanel({title: "Limits", limits: limits[0]?.value, kinds: ["max-connections", "max-queues"], path: at("vhost-limits", params.name),
                changed: drawRights, mayChange: isAdministrator}));
    }
    await Promise.all([context.every(EVERY_MS, draw), drawRights()]);
}
