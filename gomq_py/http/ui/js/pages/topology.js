// Topology: exchange -> queue -> consumer, and where a routing key would go, and why.

import {at, get, send} from "../core/api.js";
import {form, readArguments} from "../core/dialog.js";
import {badge, h, name, nameLink, replace, visible} from "../core/dom.js";
import {count, number, time} from "../core/format.js";
import {drawing, edgeId, hrefOf, key} from "../messages/graph.js";
import {addStyle} from "../messages/style.js";

const PAGE = 500;
// More than that is no picture any more: whoever has more filters.
const MOST_EXCHANGES = 60, MOST_QUEUES = 80, MOST_CONSUMERS = 3, MOST_BINDINGS = 2000;

export const title = () => "Topology";

export async function show(root, params, context) {
    await addStyle();
    const vhost = context.query.vhost ?? (context.vhost || "/");
    const picture = h("div", {class: "graph", tabindex: "0", role: "region", "aria-label": "Picture of the topology"});
    const told = h("p", {class: "quiet", role: "status"}, "Loading\u2026"), outcome = h("div", {class: "page", "aria-live": "polite"});
    const fault = h("p", {class: "fault", role: "alert"});
    const filter = h("input", {type: "search", value: context.query.filter ?? "", placeholder: "Filter by name", "aria-label": "Filter exchanges and queues", spellcheck: "false"});
    const names = h("datalist", {id: "topology-exchanges"});
    let graph = {nodes: [], edges: []}, hits = null, all = null;

    const redraw = () => {
        graph = graphOf(all, vhost, filter.value);
        replace(names, all.exchanges.filter(one => one.name).map(one => h("option", {value: one.name})));
        if (hits) addHits(graph, hits, all, vhost);
        replace(picture, graph.nodes.length ? drawing(graph.nodes, graph.edges, hits) : h("p", {class: "nothing"}, filter.value
            ? "Nothing matches the filter." : "No exchange is bound to a queue yet."));
        replace(told, `${count(graph.shown.exchanges, "exchange")}, ${count(graph.shown.queues, "queue")}`,
            graph.cut || !all.complete ? " are shown; there are more, which a filter finds" : "");
    };
    filter.addEventListener("input", () => {
        context.setQuery({filter: filter.value});
        redraw();
    });
    const fields = form([
        {name: "exchange", label: "Exchange", list: "topology-exchanges", value: context.query.exchange ?? "", placeholder: "(default)"},
        {name: "key", label: "Routing key", value: context.query.key ?? ""},
        {name: "headers", label: "Headers, a line each", type: "textarea", rows: 2, value: context.query.headers ?? ""},
    ]);
    const tryOut = async () => {
        replace(fault);
        try {
            const {exchange, key: routingKey, headers} = fields.values();
            const table = readArguments(headers);
            const found = await send("POST", `${at("exchanges", vhost, exchange || "amq.default")}/route`, {
                routing_key: routingKey, ...(Object.keys(table).length ? {headers: table} : {})}, {signal: context.signal});
            context.setQuery({exchange, key: routingKey, headers, tried: "1"});
            hits = hitsOf(found, exchange);
            redraw();
            replace(outcome, explained(found, vhost));
        } catch (error) {
            if (error.name !== "AbortError") replace(fault, error.reason ?? error.message);
        }
    };
    root.append(
        h("div", {class: "head"}, h("h1", null, "Topology"), h("span", {class: "quiet"}, "of ", name(vhost)), h("span", {class: "grow"}), filter),
        h("form", {class: "panel", onsubmit: event => {
            event.preventDefault();
            tryOut();
        }}, h("h2", null, "Where would this message go, and why?"), names, fields.element, fault,
        h("div", {class: "buttons"}, h("button", {type: "button", onclick: () => {
            hits = null;
            context.setQuery({tried: null});
            replace(outcome);
            redraw();
        }}, "Clear"), h("button", {type: "submit", class: "primary"}, "Try it"))),
        outcome, told, picture);
    all = await load(vhost, context.signal);
    redraw();
    if (context.query.tried) await tryOut();
}

async function pages(path, most, signal, query = {}) {
    const rows = [];
    for (let page = 1; rows.length < most; page++) {
        const answer = await get(path, {signal, query: {...query, page, page_size: PAGE}});
        rows.push(...answer.items);
        if (page >= answer.page_count) return {rows, complete: true};
    }
    return {rows, complete: false};
}

async function load(vhost, signal) {
    const [exchanges, queues, bindings, consumers] = await Promise.all([
        pages(at("exchanges", vhost), MOST_BINDINGS, signal, {columns: "name,type", sort: "name"}),
        pages(at("queues", vhost), MOST_BINDINGS, signal, {disable_stats: true, enable_queue_totals: true, columns: "name,messages,type", sort: "name"}),
        pages(at("bindings", vhost), MOST_BINDINGS, signal),
        pages(at("consumers", vhost), MOST_BINDINGS, signal),
    ]);
    return {
        exchanges: exchanges.rows, queues: queues.rows, bindings: bindings.rows, consumers: consumers.rows,
        complete: [exchanges, queues, bindings, consumers].every(one => one.complete),
    };
}

function graphOf({exchanges, queues, bindings, consumers}, vhost, filter) {
    const wanted = filter.trim().toLowerCase();
    const fits = one => one.toLowerCase().includes(wanted);
    const bound = bindings.filter(one => one.source !== "" && (!wanted || fits(one.source) || fits(one.destination)));
    const exchangeNames = new Set(), queueNames = new Set();
    for (const one of bound) {
        exchangeNames.add(one.source);
        (one.destination_type === "queue" ? queueNames : exchangeNames).add(one.destination);
    }
    for (const one of consumers) if (!wanted || fits(one.queue.name)) queueNames.add(one.queue.name);
    if (wanted) {
        for (const one of exchanges) if (one.name && fits(one.name)) exchangeNames.add(one.name);
        for (const one of queues) if (fits(one.name)) queueNames.add(one.name);
    }
    const cut = exchangeNames.size > MOST_EXCHANGES || queueNames.size > MOST_QUEUES;
    const types = new Map(exchanges.map(one => [one.name, one.type])), lengths = new Map(queues.map(one => [one.name, one]));
    const nodes = [], edges = new Map();
    const put = (kind, called, note, href) => nodes.push({kind, name: called, key: key(kind, called), label: called, note, href});
    for (const one of [...exchangeNames].sort().slice(0, MOST_EXCHANGES)) put("exchange", one, types.get(one) ?? "exchange", hrefOf("exchange", vhost, one));
    for (const one of [...queueNames].sort().slice(0, MOST_QUEUES)) putQueue(put, one, lengths, vhost);
    const shown = new Set(nodes.map(one => one.key));
    for (const one of bound) {
        const from = key("exchange", one.source), to = key(one.destination_type, one.destination);
        if (!shown.has(from) || !shown.has(to)) continue;
        const id = edgeId(from, to);
        const label = edges.get(id)?.label;
        const own = one.routing_key === "" ? "(empty key)" : one.routing_key;
        edges.set(id, {from, to, label: label && label.length > 500 ? label : label ? `${label}, ${own}` : own});
    }
    const perQueue = new Map();
    for (const one of consumers) {
        const to = key("queue", one.queue.name);
        if (!shown.has(to)) continue;
        if (!perQueue.has(to)) perQueue.set(to, []);
        perQueue.get(to).push(one);
    }
    for (const [queue, all] of perQueue) {
        all.slice(0, MOST_CONSUMERS).forEach((one, index) => {
            const more = index === MOST_CONSUMERS - 1 ? all.length - MOST_CONSUMERS : 0;
            const called = `${queue}\n${index}`;
            put("consumer", called, more > 0 ? `and ${number(more)} more` : one.channel_details?.user ?? "", null);
            nodes.at(-1).label = one.consumer_tag;
            edges.set(edgeId(queue, key("consumer", called)), {from: queue, to: key("consumer", called), label: "consumes"});
        });
    }
    return {nodes, edges: [...edges.values()], cut, shown: {exchanges: Math.min(exchangeNames.size, MOST_EXCHANGES), queues: Math.min(queueNames.size, MOST_QUEUES)}};
}

function putQueue(put, called, lengths, vhost) {
    const row = lengths.get(called);
    put("queue", called, row ? `${row.type === "stream" ? "stream, " : ""}${count(row.messages ?? 0, "message")}` : "queue", hrefOf("queue", vhost, called));
}

const nodeKey = (type, called) => key(type === "exchange" ? "exchange" : "queue", called);

function hitsOf(found, exchange) {
    const nodes = new Set([key("exchange", exchange)]), edges = new Set();
    for (const step of found.steps) {
        const from = nodeKey(step.source_type, step.source), to = nodeKey(step.destination_type, step.destination);
        nodes.add(from);
        nodes.add(to);
        edges.add(edgeId(from, to));
    }
    return {nodes, edges};
}

// What a trial reached is shown, also where neither bindings nor the filter have it: the default exchange, alternates.
function addHits(graph, hits, all, vhost) {
    const shown = new Set(graph.nodes.map(one => one.key));
    const lengths = new Map(all.queues.map(one => [one.name, one])), types = new Map(all.exchanges.map(one => [one.name, one.type]));
    const put = (kind, called, note, href) => graph.nodes.push({kind, name: called, key: key(kind, called), label: called || "(default)", note, href});
    for (const id of hits.nodes) {
        if (shown.has(id)) continue;
        const [kind, called] = [id.slice(0, id.indexOf("\n")), id.slice(id.indexOf("\n") + 1)];
        if (kind === "queue") putQueue(put, called, lengths, vhost);
        else put("exchange", called, types.get(called) ?? "direct", hrefOf("exchange", vhost, called || "amq.default"));
    }
    const known = new Set(graph.edges.map(one => edgeId(one.from, one.to)));
    for (const id of hits.edges) {
        const [from, to] = JSON.parse(id);
        if (!known.has(id)) graph.edges.push({from, to, label: "routes"});
    }
}

function explained(found, vhost) {
    const of = (type, called) => type === "client" ? name(called) : called === "" ? "(default)" : nameLink(hrefOf(type, vhost, called), called);
    return h("section", {class: "panel", "data-outcome": "route"},
        h("div", {class: "row"}, found.unroutable ? badge("unroutable", "bad") : badge(count(found.matches.length, "destination"), "good"),
            h("span", null, found.unroutable ? "No queue would get the message: it would be dropped, or returned if it is mandatory." : "Each of these would get a copy."),
            found.complete ? null : badge("incomplete: too many bindings", "warn")),
        found.delayed.map(one => h("p", null, "The exchange ", name(one.exchange), ` would delay it until ${time(one.due)}.`)),
        found.matches.length ? h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Destinations"}, h("table", {class: "list"},
            h("caption", {class: "unseen"}, "Destinations"),
            h("thead", null, h("tr", null, ["Destination", "Why", "By way of", "State", "Messages", "Consumers"].map(one => h("th", {scope: "col"}, one)))),
            h("tbody", null, found.matches.map(one => h("tr", null, h("th", {scope: "row"}, of(one.destination_type, one.destination)),
                h("td", {class: "why"}, name(one.why)), h("td", null, name(one.via.map(each => each || "(default)").join(" \u2192 "))),
                h("td", null, one.state ? badge(one.state, one.state === "running" ? "good" : "warn") : ""),
                h("td", {class: "numeric"}, one.messages === undefined ? "" : number(one.messages)),
                h("td", {class: "numeric"}, one.consumers === undefined ? "" : one.consumers ? number(one.consumers) : badge("none", "warn"))))))) : null,
        found.steps.length ? h("details", null, h("summary", null, count(found.steps.length, "step")), h("ol", null, found.steps.map(step => h("li", null,
            of(step.source_type, step.source), " \u2192 ", of(step.destination_type, step.destination), ": ", visible(step.why))))) : null);
}
