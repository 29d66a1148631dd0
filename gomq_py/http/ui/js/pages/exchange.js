// One exchange.

import {at, get, send} from "../core/api.js";
import {lineChart, rates} from "../core/chart.js";
import {badge, facts, h, name, panel, replace} from "../core/dom.js";
import {tell} from "../core/dialog.js";
import {number, rate} from "../core/format.js";
import {go} from "../core/router.js";
import {table} from "../core/table.js";
import {tabs} from "../core/tabs.js";
import {
    argumentsList, askBinding, confirmed, exchangeLink, features, mayUnbind, ofExchange, policyLink, queueLink, rangeChoice, samplesQuery, unbind, vhostLink,
} from "./parts.js";

const EVERY_MS = 5000;

const realName = params => params.name === "amq.default" ? "" : params.name;

export const title = params => ofExchange(realName(params));

export async function show(root, params, context) {
    const {vhost} = params;
    const exchangeName = realName(params);
    const path = at("exchanges", vhost, params.name);
    const given = {vhost, name: exchangeName, path, exchange: await get(path, {signal: context.signal})};
    const isOurs = exchangeName === "" || exchangeName.startsWith("amq.");
    root.append(h("div", {class: "head"}, h("h1", null, name(ofExchange(exchangeName))), badge(given.exchange.type), h("span", {class: "grow"}),
        isOurs || !context.session.may("configure", vhost, exchangeName) ? null : h("button", {type: "button", class: "danger", onclick: async () => {
            if (await confirmed(`Delete ${exchangeName}`, "The exchange and its bindings are deleted.", () => send("DELETE", path), {typed: exchangeName})) go("#/exchanges");
        }}, "Delete\u2026")), h("p", {class: "quiet"}, "in ", vhostLink(vhost)));
    await tabs(root, context, [
        {key: "overview", label: "Overview", show: (part, inner) => overview(part, inner, given)},
        {key: "bindings", label: "Bindings", show: (part, inner) => outgoing(part, inner, given)},
        ...exchangeName === "" ? [] : [{key: "incoming", label: "Bound to", show: (part, inner) => incoming(part, inner, given)}],
    ]);
}

async function overview(root, context, {path}) {
    const range = rangeChoice(context, () => draw().catch(context.fail));
    const flow = lineChart({title: "Messages per second", unit: rate});
    const place = h("div");
    root.append(h("div", {class: "row"}, h("span", {class: "grow"}), range.element), flow.element, place);

    async function draw() {
        const seconds = range.seconds();
        const exchange = await get(path, {signal: context.signal, query: samplesQuery(seconds)});
        const stats = exchange.message_stats ?? {};
        flow.update([{label: "In", points: rates(stats.publish_in_details)}, {label: "Out", points: rates(stats.publish_out_details)}], seconds);
        replace(place, panel("Details", facts([["Type", exchange.type], ["Features", features(exchange)], ["Published in", number(stats.publish_in ?? 0)],
            ["Published out", number(stats.publish_out ?? 0)], ["Policy", exchange.policy ? policyLink(exchange.vhost, exchange.policy) : "none"],
            ["Set aside", exchange.messages_set_aside ? number(exchange.messages_set_aside) : null]]),
        h("h3", null, "Arguments"), argumentsList(exchange.arguments), h("h3", null, "Effective policy definition"), argumentsList(exchange.effective_policy_definition)));
    }
    await context.every(EVERY_MS, draw);
}

const KEY_COLUMNS = [
    {key: "key", label: "Routing key", sort: "routing_key", cell: row => name(row.routing_key)},
    {key: "arguments", label: "Arguments", cell: row => argumentsList(row.arguments, "")},
];
const unbinding = context => ({label: "Unbind", kind: "danger", needs: row => mayUnbind(context.session, row), run: async rows => {
    for (const row of rows) await tell(() => unbind(row));
}});

async function outgoing(root, context, {path, vhost, name: source}) {
    const list = table({
        id: "exchange-bindings", caption: "Bindings", context, order: "destination", empty: "No bindings.",
        key: row => `${row.destination_type}\n${row.destination}\n${row.properties_key}`, load: query => get(`${path}/bindings/source`, {signal: context.signal, query}),
        columns: [
            {key: "to", label: "To", sort: "destination", cell: row => row.destination_type === "queue" ? queueLink(row.vhost, row.destination) : exchangeLink(row.vhost, row.destination)},
            {key: "kind", label: "Kind", sort: "destination_type", cell: row => row.destination_type}, ...KEY_COLUMNS,
        ],
        buttons: source === "" || !context.session.may("read", vhost, source) ? [] : [h("button", {type: "button", class: "primary", onclick: async () => {
            if (await askBinding({vhost, source})) await list.refresh();
        }}, "Bind\u2026")],
        actions: source === "" ? null : [unbinding(context)],
    });
    root.append(list.element);
    await list.start();
}

async function incoming(root, context, {path, vhost, name: destination}) {
    const list = table({
        id: "exchange-incoming", caption: "Bound to", context, order: "source", empty: "The exchange is bound to no other exchange.",
        key: row => `${row.source}\n${row.properties_key}`, load: query => get(`${path}/bindings/destination`, {signal: context.signal, query}),
        columns: [{key: "from", label: "From exchange", sort: "source", cell: row => exchangeLink(row.vhost, row.source)}, ...KEY_COLUMNS],
        buttons: !context.session.may("write", vhost, destination) ? [] : [h("button", {type: "button", class: "primary", onclick: async () => {
            if (await askBinding({vhost, destination, kind: "e"})) await list.refresh();
        }}, "Bind\u2026")],
        actions: [unbinding(context)],
    });
    root.append(list.element);
    await list.start();
}
