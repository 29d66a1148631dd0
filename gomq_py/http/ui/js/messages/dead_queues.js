// Which queues get dead letters: by arguments and policies of those where messages die, and the bindings of the
// exchanges they die to; and the queues NAME.dead, to which workers of gomq_py.dispatcher bring the tasks of NAME.

import {at, get} from "../core/api.js";

const PAGE = 500;
// Queues that are looked through for where their dead letters go, and exchanges whose bindings are read.
export const MOST_QUEUES = 5000;
export const MOST_EXCHANGES = 100;

/** {queues: [{vhost, name, ready, from: [names of queues]}], complete}: in the vhost, or in all where it is "". */
export async function deadQueues(vhost, signal) {
    const {rows, complete} = await allQueues(vhost, signal);
    const byName = new Map(rows.map(row => [id(row.vhost, row.name), row]));
    const exchanges = new Map();
    const found = new Map();
    const add = (row, from) => {
        if (!row) return;
        const key = id(row.vhost, row.name);
        if (!found.has(key)) found.set(key, {vhost: row.vhost, name: row.name, ready: row.messages_ready ?? 0, type: row.type, from: []});
        const {from: known} = found.get(key);
        if (!known.includes(from)) known.push(from);
    };
    for (const row of rows) {
        add(byName.get(id(row.vhost, `${row.name}.dead`)), row.name);
        const exchange = setting(row, "dead-letter-exchange");
        if (exchange === undefined) continue;
        const key = setting(row, "dead-letter-routing-key");
        if (exchange === "") {
            if (key !== undefined) add(byName.get(id(row.vhost, key)), row.name);
            continue;
        }
        const exchangeId = id(row.vhost, exchange);
        if (!exchanges.has(exchangeId)) exchanges.set(exchangeId, {vhost: row.vhost, exchange, from: []});
        exchanges.get(exchangeId).from.push(row.name);
    }
    for (const one of [...exchanges.values()].slice(0, MOST_EXCHANGES)) {
        const bindings = await get(`${at("exchanges", one.vhost, one.exchange)}/bindings/source`, {signal}).catch(() => []);
        for (const binding of bindings) {
            if (binding.destination_type !== "queue") continue;
            const row = byName.get(id(one.vhost, binding.destination));
            for (const from of one.from) add(row, from);
        }
    }
    return {
        queues: [...found.values()].sort((a, b) => b.ready - a.ready || a.name.localeCompare(b.name)),
        complete: complete && exchanges.size <= MOST_EXCHANGES,
    };
}

const id = (vhost, name) => JSON.stringify([vhost, name]);

function setting(row, key) {
    const value = row.arguments?.[`x-${key}`] ?? row.effective_policy_definition?.[key];
    return typeof value === "string" ? value : undefined;
}

async function allQueues(vhost, signal) {
    const rows = [];
    for (let page = 1; rows.length < MOST_QUEUES; page++) {
        const answer = await get(vhost ? at("queues", vhost) : "queues", {signal, query: {
            page, page_size: PAGE, sort: "name", columns: "name,vhost,type,messages_ready,arguments,effective_policy_definition"}});
        rows.push(...answer.items);
        if (page >= answer.page_count) return {rows, complete: true};
    }
    return {rows, complete: false};
}
