// One channel.

import {at, get, send} from "../core/api.js";
import {lineChart, rates} from "../core/chart.js";
import {facts, h, name, panel, replace} from "../core/dom.js";
import {ask} from "../core/dialog.js";
import {number, rate} from "../core/format.js";
import {connectionLink, plainTable, queueLink, rangeChoice, samplesQuery, state, userLink, vhostLink} from "./parts.js";

const EVERY_MS = 5000;

export const title = params => params.name;

export async function show(root, params, context) {
    const path = at("channels", params.name);
    const range = rangeChoice(context, () => draw().catch(context.fail));
    const mark = h("span");
    const flow = lineChart({title: "Messages per second", unit: rate});
    const place = h("div", {class: "page"});
    let prefetch = 0;
    root.append(h("div", {class: "head"}, h("h1", null, name(params.name)), mark, h("span", {class: "grow"}), range.element,
        h("button", {type: "button", onclick: async () => {
            const changed = await ask({title: "Prefetch", submit: "Change", text: "Most unacknowledged messages of each consumer, present and future.",
                fields: [{name: "prefetch", label: "Prefetch (0: no limit)", type: "number", min: 0, max: 65535, value: prefetch, required: true}],
                run: given => send("PUT", path, given)});
            if (changed) await draw().catch(context.fail);
        }}, "Prefetch\u2026")), flow.element, place);

    async function draw() {
        const seconds = range.seconds();
        const one = await get(path, {signal: context.signal, query: samplesQuery(seconds)});
        prefetch = one.prefetch_count;
        replace(mark, state(one.state));
        const stats = one.message_stats;
        flow.update([["publish", "Publish"], ["confirm", "Confirm"], ["deliver_get", "Deliver"]].map(
            ([key, label]) => ({label, points: rates(stats[`${key}_details`])})), seconds);
        const consumers = one.consumer_details ?? [];
        replace(place, panel("Details", facts([
            ["Connection", connectionLink(one.connection_details.name)], ["User", userLink(context.session, one.user)], ["Virtual host", vhostLink(one.vhost)],
            ["Mode", one.transactional ? "transactions" : one.confirm ? "confirms" : "plain"], ["Prefetch", one.prefetch_count || "no limit"],
            ["Prefetch of the channel", one.global_prefetch_count || "no limit"], ["Unacknowledged", number(one.messages_unacknowledged)],
            ["Unconfirmed", number(one.messages_unconfirmed)], ["Published", number(stats.publish)], ["Delivered", number(stats.deliver_get)],
        ])), panel("Consumers", consumers.length ? plainTable("Consumers", ["Tag", "Queue", "Prefetch", "Acks", "Exclusive"], consumers.map(each => [
            name(each.consumer_tag), queueLink(each.queue.vhost, each.queue.name), each.prefetch_count || "no limit", each.ack_required ? "yes" : "no",
            each.exclusive ? "yes" : "no"])) : h("p", {class: "quiet"}, "No consumers.")));
    }
    await context.every(EVERY_MS, draw);
}
