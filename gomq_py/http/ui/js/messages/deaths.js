// Deaths: what x-death and its relatives say about a dead letter, or x-task-queue about a dead task, and what a replay
// would make of it. Plain values.

// Written by dead-lettering; a replay with x_death: "clean" takes them away.
const DEATH_HEADERS = [
    "x-death", ...["first", "last"].flatMap(which => ["reason", "queue", "exchange"].map(what => `x-${which}-death-${what}`)),
];

// Written by workers of gomq_py.dispatcher; a replay takes them away.
const TASK_HEADERS = ["queue", "attempt", "unknown", "reason", "error", "worker"].map(what => `x-task-${what}`);

const isDeath = one => one !== null && typeof one === "object" && typeof one.queue === "string"
    && typeof one.exchange === "string" && Array.isArray(one["routing-keys"]);

/** The deaths of a message, the latest first. */
export function deathsOf(message) {
    const deaths = message.properties?.headers?.["x-death"];
    return Array.isArray(deaths) ? deaths.filter(isDeath) : [];
}

/** {queue, exchange, keys, reason, count, isTask}: where a replay brings it, as the broker judges; or null. A dead task
 * has the exchange null, and its attempts as count. */
export function originOf(message) {
    const headers = message.properties?.headers ?? {};
    const deaths = deathsOf(message);
    const tasks = headers["x-task-queue"];
    if (!deaths.length && typeof tasks === "string") {
        const reason = String(headers["x-task-error"] ?? "given up");
        return {queue: tasks, exchange: null, keys: [tasks], reason, count: Number(headers["x-task-attempt"]) || 1, isTask: true};
    }
    const named = deaths.filter(
        one => one.queue === headers["x-first-death-queue"] && one.reason === headers["x-first-death-reason"]);
    const death = (named.length ? named : deaths).at(-1);
    const keys = death?.["routing-keys"].filter(key => typeof key === "string") ?? [];
    if (!keys.length) return null;
    const count = deaths.reduce((sum, one) => sum + (Number(one.count) || 1), 0);
    return {queue: death.queue, exchange: death.exchange, keys, reason: String(death.reason), count, isTask: false};
}

/** Groups of {reason, queue, exchange, isTask, messages, most, oldest}: dead letters by why and where they died first,
 * the largest first. Those without an origin have the queue null. */
export function groups(messages) {
    const found = new Map();
    for (const message of messages) {
        const origin = originOf(message);
        const key = JSON.stringify(origin && [origin.reason, origin.queue, origin.exchange]);
        if (!found.has(key)) {
            found.set(key, {
                key, reason: origin?.reason ?? null, queue: origin?.queue ?? null, exchange: origin?.exchange ?? null,
                isTask: origin?.isTask ?? false, messages: [], most: 0, oldest: Infinity,
            });
        }
        const group = found.get(key);
        group.messages.push(message);
        group.most = Math.max(group.most, origin?.count ?? 0);
        group.oldest = Math.min(group.oldest, message.timestamp ?? Infinity);
    }
    return [...found.values()].sort((a, b) => b.messages.length - a.messages.length);
}

/** Headers that choose the messages of such a group in a request to replay. */
export function choosing(group) {
    if (group.isTask) return {"x-task-queue": group.queue, "x-task-error": group.reason};
    return {"x-first-death-reason": group.reason, "x-first-death-queue": group.queue, "x-first-death-exchange": group.exchange};
}

/** Rows of [what, before, after]: what a replay changes in this message of `queue`. */
export function difference(message, queue, {to, x_death: deaths}) {
    const origin = originOf(message);
    if (!origin) return [];
    const rows = [
        ["queue", queue, to === "queue" ? origin.queue : "where the exchange routes it"],
        ["exchange", message.exchange, origin.exchange ?? ""],
        ["routing key", message.routing_key, to === "queue" ? origin.keys[0] : origin.keys.join(", ")],
    ];
    for (const header of [...DEATH_HEADERS, ...TASK_HEADERS]) {
        const value = message.properties.headers[header];
        if (value === undefined) continue;
        rows.push([header, value, deaths === "clean" || TASK_HEADERS.includes(header) ? null : value]);
    }
    return rows;
}
