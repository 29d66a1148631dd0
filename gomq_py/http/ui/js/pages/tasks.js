// Tasks: messages of gomq_py.dispatcher, Celery and its like, by their names, ids and times, as their headers
// (protocol 2 of Celery) or bodies (protocol 1, gomq_py.dispatcher) say. Looked at without taking them.

import {at, get} from "../core/api.js";
import {badge, h, name, nameLink, replace, visible} from "../core/dom.js";
import {ago, count, duration, number} from "../core/format.js";
import {link} from "../core/router.js";
import {table} from "../core/table.js";
import {textOf} from "../decode/octets.js";
import {MOST, peek} from "../messages/peek.js";

const SUGGESTED = 500;
const EVERY_MS = 10000;
// Protocol 1 has it all in the body.
const BODY_OCTETS = 4096;

export const title = () => "Tasks";

/** What a message says of its task, or null. */
export function taskOf(message) {
    const headers = message.properties?.headers ?? {};
    if (typeof headers.task === "string") {
        return {
            task: headers.task, id: String(headers.id ?? message.properties.correlation_id ?? ""), root: headers.root_id, retries: headers.retries ?? 0,
            eta: headers.eta ?? null, expires: headers.expires ?? null, args: headers.argsrepr ?? null, kwargs: headers.kwargsrepr ?? null,
            origin: headers.origin ?? null,
        };
    }
    let body;
    try {
        body = JSON.parse(textOf(message.octets) ?? "");
    } catch {
        return null;
    }
    if (body === null || typeof body !== "object") return null;
    if (typeof body.name === "string" && (body.args === null || Array.isArray(body.args))) return dispatched(body, headers);
    if (typeof body.task !== "string") return null;
    return {
        task: body.task, id: String(body.id ?? ""), root: null, retries: body.retries ?? 0, eta: body.eta ?? null, expires: body.expires ?? null,
        args: JSON.stringify(body.args ?? []), kwargs: JSON.stringify(body.kwargs ?? {}), origin: null,
    };
}

/** The same of a task of gomq_py.dispatcher. */
function dispatched(body, headers) {
    // 8.64e15 ms: what a Date can hold.
    const at = ms => typeof ms === "number" && Math.abs(ms) <= 8.64e15 ? new Date(ms).toISOString() : null;
    return {
        task: body.name, id: String(body.uuid ?? ""), root: null, retries: Math.max(0, (Number(headers["x-task-attempt"]) || 1) - 1),
        eta: at(headers["x-task-due"]), expires: at(headers["x-task-expires"]),
        args: JSON.stringify((body.args ?? []).map(one => one?.value)), kwargs: null, origin: null,
        died: headers["x-task-reason"] === undefined ? null : `${headers["x-task-error"]}: ${headers["x-task-reason"]}`,
    };
}

export async function show(root, params, context) {
    const vhost = context.vhost || "/";
    const queues = (await get(at("queues", vhost), {signal: context.signal, query: {
        columns: "name,messages_ready,type", disable_stats: true, enable_queue_totals: true, page: 1, page_size: SUGGESTED, sort: "messages_ready",
        sort_reverse: true}})).items.filter(one => one.type !== "stream");
    const told = h("p", {class: "quiet", role: "status"});
    root.append(h("div", {class: "head"}, h("h1", null, "Tasks"), h("span", {class: "quiet"}, "in ", name(vhost))));
    if (!queues.length) {
        root.append(h("p", {class: "nothing"}, "There are no queues."));
        return;
    }
    const known = queues.map(one => one.name);
    let chosen = context.query.queue ?? (known.includes("celery") ? "celery" : known[0]);
    if (!known.includes(chosen)) known.push(chosen);
    const choice = h("select", {"aria-label": "Queue", value: chosen, onchange: () => {
        chosen = choice.value;
        context.setQuery({queue: chosen, page: null});
        list.refresh();
    }}, known.map(one => h("option", {value: one}, visible(one))));
    const text = value => value === null || value === undefined ? "" : name(String(value));
    const list = table({
        id: "tasks", caption: "Tasks", context, order: "position", empty: "No message here is a task.", every: EVERY_MS, buttons: [choice],
        key: row => `${row.position}\n${row.id}`, href: row => `${link("queues", vhost, chosen)}/messages?offset=${row.position}`,
        load: async () => {
            const messages = await peek(vhost, chosen, {count: MOST, truncate: BODY_OCTETS, signal: context.signal});
            const rows = messages.map(message => {
                const task = taskOf(message);
                return task && {...task, position: message.position, arrived: message.timestamp};
            }).filter(Boolean);
            const names = new Map();
            for (const row of rows) names.set(row.task, (names.get(row.task) ?? 0) + 1);
            replace(told, `${count(rows.length, "task")} among the ${number(messages.length)} oldest messages: `,
                [...names].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([task, times], index) => [index ? ", " : "", name(task), ` ${number(times)}`]));
            return rows;
        },
        columns: [
            {key: "task", label: "Task", sort: "task", cell: row => nameLink(`${link("queues", vhost, chosen)}/messages?offset=${row.position}`, row.task)},
            {key: "id", label: "Id", sort: "id", cell: row => name(row.id)},
            {key: "position", label: "Position", sort: "position", numeric: true, cell: row => number(row.position)},
            {key: "waits", label: "Waits", sort: "arrived", numeric: true, cell: row => ago(row.arrived)},
            {key: "eta", label: "ETA", sort: "eta", cell: row => etaOf(row.eta)},
            {key: "expires", label: "Expires", sort: "expires", hidden: true, cell: row => etaOf(row.expires)},
            {key: "retries", label: "Retries", sort: "retries", numeric: true, cell: row => number(Number(row.retries) || 0)},
            {key: "args", label: "Arguments", sort: "args", cell: row => text(row.args)},
            {key: "kwargs", label: "Keywords", sort: "kwargs", cell: row => text(row.kwargs)},
            {key: "died", label: "Given up", sort: "died", cell: row => text(row.died)},
            {key: "origin", label: "Sent by", sort: "origin", hidden: true, cell: row => text(row.origin)},
            {key: "root", label: "Root", sort: "root", hidden: true, cell: row => text(row.root)},
        ],
    });
    root.append(told, list.element);
    await list.start();
}

function etaOf(value) {
    if (value === null || value === undefined) return "";
    const ms = Date.parse(value);
    if (Number.isNaN(ms)) return name(String(value));
    return ms > Date.now() ? badge(`in ${duration((ms - Date.now()) / 1000)}`, "warn", String(value)) : badge("due", "good", String(value));
}
