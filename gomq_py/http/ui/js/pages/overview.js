// The overview: what there is, how fast it moves, and what is wrong now.

import {get} from "../core/api.js";
import {curve, figures, lineChart, rangeChoice, rates, samplesQuery} from "../core/chart.js";
import {h, name, nameLink, replace} from "../core/dom.js";
import {number, octetRate, rate, short} from "../core/format.js";
import {find, link} from "../core/router.js";

const EVERY_MS = 5000;
const DOCTOR_MS = 15000;
const FLOWS = [["publish", "Publish"], ["deliver_get", "Deliver"], ["ack", "Acknowledge"], ["confirm", "Confirm"], ["redeliver", "Redeliver"],
    ["return_unroutable", "Unroutable"]];

export const title = () => "Overview";

export async function show(root, params, context) {
    const range = rangeChoice(context, () => draw().catch(context.fail));
    const totals = h("div");
    const wrong = h("section", {class: "panel", "aria-label": "Problems"}, h("h2", null, "Problems"), h("p", {class: "quiet"}, "Looking\u2026"));
    const depth = lineChart({title: "Messages in queues", unit: short});
    const flow = lineChart({title: "Messages per second", unit: rate});
    const data = lineChart({title: "Data", unit: octetRate});
    const churn = context.session.can("monitoring") ? lineChart({title: "Opened and closed per second", unit: rate}) : null;
    const listeners = h("div");
    root.append(h("div", {class: "head"}, h("h1", null, "Overview"), h("span", {class: "grow"}), range.element), totals, wrong,
        h("div", {class: "grid"}, depth.element, flow.element, data.element, churn?.element ?? ""), listeners);

    async function draw() {
        const seconds = range.seconds();
        const {signal} = context;
        const answer = await get("overview", {signal, query: samplesQuery(seconds)});
        const {object_totals: objects, queue_totals: lengths, message_stats: stats, churn_rates: moved} = answer;
        replace(totals, figures([
            ["ready", short(lengths.messages_ready), "#/queues?sort=messages_ready&desc=1"],
            ["unacknowledged", short(lengths.messages_unacknowledged), "#/queues?sort=messages_unacknowledged&desc=1"],
            ["published", rate(stats.publish_details.rate)], ["delivered", rate(stats.deliver_get_details.rate)],
            ["queues", number(objects.queues), "#/queues"], ["exchanges", number(objects.exchanges), "#/exchanges"],
            ["connections", number(objects.connections), "#/connections"], ["channels", number(objects.channels), "#/channels"],
            ["consumers", number(objects.consumers), "#/consumers"],
        ]));
        depth.update([{label: "Ready", points: curve(lengths.messages_ready_details)},
            {label: "Unacked", points: curve(lengths.messages_unacknowledged_details)}], seconds);
        flow.update(FLOWS.map(([key, label]) => ({label, points: rates(stats[`${key}_details`])})), seconds);
        data.update([{label: "Received", points: rates(answer.recv_oct_details)}, {label: "Sent", points: rates(answer.send_oct_details)}], seconds);
        churn?.update([["connection_created", "Connections opened"], ["connection_closed", "Connections closed"],
            ["channel_created", "Channels opened"], ["channel_closed", "Channels closed"]].map(([key, label]) => ({label, points: rates(moved[`${key}_details`])})), seconds);
        drawListeners(listeners, answer);
    }
    await Promise.all([context.every(EVERY_MS, draw), context.every(DOCTOR_MS, async () => {
        drawFindings(wrong, (await get("doctor", {signal: context.signal})).findings);
    })]);
}

const PLACES = {queue: "queues", stream: "queues", exchange: "exchanges", connection: "connections", channel: "channels", vhost: "vhosts", user: "users"};
const PAGES_OF = {cluster: "#/cluster", queues: "#/queues", connections: "#/connections", node: "#/nodes", disk: "#/nodes", certificate: "#/nodes", shovel: "#/shovels", federation: "#/federation", link: "#/federation"};

// Where one sees it: the thing itself, or the page that is about such things.
function placeOf({kind, vhost, name: object}) {
    if (object !== null && PLACES[kind]) return link(...[PLACES[kind], ...vhost === null ? [] : [vhost], object]);
    const page = PAGES_OF[kind];
    return page && find(page.slice(1)) ? page : null;
}

function drawFindings(place, findings) {
    const state = JSON.stringify(findings);
    if (place.dataset.state === state) return;
    place.dataset.state = state;
    const heading = h("h2", null, "Problems");
    replace(place, heading, findings.length ? h("ul", {class: "findings"}, findings.map(one => {
        const href = placeOf(one);
        return h("li", {class: one.level}, h("span", {class: `badge ${one.level === "bad" ? "bad" : "warn"}`}, one.level === "bad" ? "error" : "warning"),
            h("div", null, h("p", null, h("b", null, href ? nameLink(href, one.subject) : name(one.subject)), " ", name(one.text)),
                one.remedy ? h("p", {class: "quiet"}, name(one.remedy)) : null));
    })) : h("p", {class: "fine"}, "No problems."));
}

function drawListeners(place, answer) {
    const state = JSON.stringify(answer.listeners);
    if (place.dataset.state === state) return;
    place.dataset.state = state;
    replace(place, h("section", {class: "panel"}, h("h2", null, "Broker"), h("p", {class: "quiet"},
        `${answer.product_name} ${answer.product_version} on ${answer.node}, cluster name ${answer.cluster_name}`),
    h("ul", {class: "row"}, answer.listeners.map(one => h("li", {class: "badge"}, one.port ? `${one.protocol} ${one.ip_address}:${one.port}` : `${one.protocol} ${one.ip_address}`.trim())))));
}

