// What several pages show alike.

import {at, get, send} from "../core/api.js";
import {badge, h, name, nameLink, visible} from "../core/dom.js";
import {ask, tell} from "../core/dialog.js";
import {number, rate} from "../core/format.js";
import {link} from "../core/router.js";
import {resume} from "../core/session.js";

/** A number, faint where it is 0: in a list the others are looked for. */
export function count(value, shown = number) {
    return value ? shown(value) : h("span", {class: "zero"}, shown(value ?? 0));
}

/** A rate, likewise. */
export function speed(value, shown = rate) {
    return count(value, shown);
}

export const ofExchange = text => text === "" ? "(default)" : text;

/** Links to things. */
export const queueLink = (vhost, queue) => nameLink(link("queues", vhost, queue), queue);
export const exchangeLink = (vhost, exchange) => nameLink(link("exchanges", vhost, exchange || "amq.default"), ofExchange(exchange));
export const connectionLink = connection => nameLink(link("connections", connection), connection);
export const channelLink = channel => nameLink(link("channels", channel), channel);
export const userLink = (session, user) => session.can("administrator") ? nameLink(link("users", user), user) : name(user);
export const vhostLink = vhost => nameLink(link("vhosts", vhost), vhost);
export const policyLink = (vhost, policy, path = "policies") => nameLink(`#/${path}?name=${encodeURIComponent(policy)}`, policy);

/** How a queue, stream, connection or channel does. */
export function state(text) {
    const kinds = {running: "good", open: "good", paused: "warn", flow: "warn", blocked: "warn", blocking: "warn", stopped: "bad", closed: "bad"};
    return badge(text ?? "unknown", kinds[text] ?? "quiet");
}

const FEATURES = [
    ["durable", "D", "durable"], ["auto_delete", "AD", "auto-delete: deleted after its last use"], ["exclusive", "Excl", "exclusive to one connection"],
    ["internal", "I", "internal: only exchanges publish to it"],
];
const ARGUMENTS = {
    "x-message-ttl": "TTL", "x-expires": "Exp", "x-max-length": "Lim", "x-max-length-bytes": "Lim B", "x-dead-letter-exchange": "DLX",
    "x-dead-letter-routing-key": "DLK", "x-max-priority": "Pri", "x-single-active-consumer": "SAC", "x-delivery-limit": "DL", "x-message-group": "Grp",
    "x-overflow": "Ovfl", "alternate-exchange": "AE", "x-message-deduplication": "Dedup", "x-max-age": "Age", "x-delayed-type": "Delay",
};

/** What was asked for, as short marks with the whole behind them. */
export function features(row) {
    const marks = FEATURES.filter(([key]) => row[key]).map(([, short, long]) => badge(short, "quiet", long));
    const others = [];
    for (const [key, value] of Object.entries(row.arguments ?? {})) {
        if (key === "x-queue-type") continue;
        const long = `${visible(key)}: ${visible(JSON.stringify(value))}`;
        if (ARGUMENTS[key]) marks.push(badge(ARGUMENTS[key], "quiet", long));
        else others.push(long);
    }
    if (others.length) marks.push(badge("Args", "quiet", others.join("\n")));
    return h("span", {class: "marks"}, marks);
}

/** An object's keys and values as a term list. */
export function argumentsList(object, empty = "none") {
    const entries = Object.entries(object ?? {});
    if (!entries.length) return h("span", {class: "quiet"}, empty);
    return h("dl", {class: "arguments"}, entries.map(([key, value]) => h("div", null, h("dt", null, name(key)),
        h("dd", null, value !== null && typeof value === "object" && !Array.isArray(value)
            ? argumentsList(value) : name(typeof value === "string" ? value : JSON.stringify(value))))));
}

/** The names of the virtual hosts that the user sees. */
export async function vhostNames(signal) {
    return (await get("vhosts", {signal, query: {columns: "name"}})).map(one => one.name);
}

/** A field to choose the virtual host of something new. */
export async function vhostField(context) {
    const names = await vhostNames(context.signal);
    return {name: "vhost", label: "Virtual host", type: "select", options: names.map(one => [one, visible(one)]),
        value: names.includes(context.vhost) ? context.vhost : names[0]};
}

export const NAME_FIELD = {name: "name", label: "Name", required: true};
export const ARGUMENTS_FIELD = {
    name: "arguments", label: "Arguments", type: "arguments", hint: "One argument on each line: x-message-ttl = 60000. Numbers, true, lists and objects are read as JSON, everything else as text.",
};

/** Ask before something goes that does not come back; with its name typed where that is much. */
export function confirmed(titleText, text, work, {submit = "Delete", typed} = {}) {
    return ask({title: titleText, text, submit, danger: true, typed, run: work});
}

/** The same work for each row, one after the other; tells how many were done and the first refusal. */
export async function each(rows, work, done) {
    let good = 0;
    for (const row of rows) {
        if (!await tell(() => work(row))) break;
        good++;
    }
    if (good) await tell(async () => {}, `${done}: ${number(good)}`);
}

export {figures, rangeChoice, samplesQuery} from "../core/chart.js";

/** The rows of a binding and what takes it away; for the pages of queues and exchanges. */
export async function unbind(row) {
    const path = at("bindings", row.vhost, "e", row.source || "amq.default", row.destination_type === "queue" ? "q" : "e", row.destination, row.properties_key);
    await send("DELETE", path);
}

/** Whether the user may take a binding away; those of the default exchange are nobody's. */
export function mayUnbind(session, row) {
    return row.source !== "" && session.may("read", row.vhost, row.source) && session.may("write", row.vhost, row.destination);
}

/** Ask for a binding: source and destination are given as far as they are known. */
export async function askBinding({vhost, source, destination, kind}) {
    const fields = [];
    if (source === undefined) fields.push({name: "source", label: "From exchange", required: true});
    if (destination === undefined) {
        fields.push({name: "kind", label: "To", type: "select", options: [["q", "queue"], ["e", "exchange"]]},
            {name: "destination", label: "Name", required: true});
    }
    fields.push({name: "routing_key", label: "Routing key"}, ARGUMENTS_FIELD);
    return ask({title: "Bind", fields, submit: "Bind", run: async given => {
        const path = at("bindings", vhost, "e", source ?? given.source, kind ?? given.kind, destination ?? given.destination);
        await send("POST", path, {routing_key: given.routing_key, arguments: given.arguments});
    }});
}


/** Ask why, and close connections; their clients are told the reason. Whether it was done. */
export function closeConnections(names) {
    return ask({
        title: names.length === 1 ? "Close the connection" : `Close ${names.length} connections`, submit: "Close", danger: true,
        text: names.length === 1 ? name(names[0]) : null, fields: [{name: "reason", label: "Reason", value: "Closed by an operator", hint: "The client is told."}],
        run: async ({reason}) => {
            for (const one of names) await send("DELETE", at("connections", one), undefined, {headers: {"X-Reason": reason}});
        },
    });
}

/** A table of few rows: heads are texts, cells text or nodes. */
export function plainTable(label, heads, rows) {
    return h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": label}, h("table", null, h("thead", null, h("tr", null,
        heads.map(one => h("th", {scope: "col"}, one || h("span", {class: "unseen"}, "Actions"))))), h("tbody", null, rows.map(row => h("tr", null, row.map(cell => h("td", null, cell)))))));
}

const RIGHTS = ["configure", "write", "read"];

/** Permissions of a user in virtual hosts, or of users in a virtual host; with topic permissions. changed() after each change. */
export async function permissionsPanel({user, vhost, rows, topics, context, changed}) {
    const ofUser = user !== undefined;
    const other = row => ofUser ? vhostLink(row.vhost) : userLink(context.session, row.user);
    const mayChange = context.session.can("administrator");
    const remove = (path, row) => mayChange ? h("button", {type: "button", class: "plain danger", onclick: async () => {
        if (await tell(() => send("DELETE", path(row)), "Removed")) await renew();
    }}, "Remove") : "";
    // They may be the user's own.
    const renew = async () => {
        await resume();
        await changed();
    };
    const pattern = text => text === "" ? h("span", {class: "quiet"}, "nothing") : h("code", null, name(text));
    const head = ofUser ? "Virtual host" : "User";

    const who = async () => ofUser ? await vhostField(context) : {name: "user", label: "User", required: true};
    const set = async () => {
        const done = await ask({title: "Permissions", submit: "Set", text: "Regular expressions over the names of queues and exchanges; empty: nothing.",
            fields: [await who(), ...RIGHTS.map(right => ({name: right, label: right, value: ".*"}))],
            run: given => send("PUT", at("permissions", vhost ?? given.vhost, user ?? given.user), Object.fromEntries(RIGHTS.map(right => [right, given[right]])))});
        if (done) await renew();
    };
    const setTopic = async () => {
        const done = await ask({title: "Topic permissions", submit: "Set", text: "Regular expressions over routing keys of a topic exchange; {username}, {vhost} and {client_id} are replaced.",
            fields: [await who(), {name: "exchange", label: "Exchange", value: "amq.topic", required: true}, {name: "write", label: "write", value: ".*"},
                {name: "read", label: "read", value: ".*"}],
            run: given => send("PUT", at("topic-permissions", vhost ?? given.vhost, user ?? given.user), {exchange: given.exchange, write: given.write, read: given.read})});
        if (done) await changed();
    };
    const button = (label, act) => mayChange ? h("button", {type: "button", onclick: () => act().catch(context.fail)}, label) : null;
    return h("div", {class: "grid"}, h("section", {class: "panel"}, h("div", {class: "head"}, h("h2", null, "Permissions"), h("span", {class: "grow"}), button("Set\u2026", set)),
        rows.length ? plainTable("Permissions", [head, ...RIGHTS, ""], rows.map(row => [other(row), ...RIGHTS.map(right => pattern(row[right])),
            remove(one => at("permissions", one.vhost, one.user), row)]))
            : h("p", {class: "quiet"}, ofUser ? "None: the user can open no virtual host." : "None: no user can open this virtual host.")),
    h("section", {class: "panel"}, h("div", {class: "head"}, h("h2", null, "Topic permissions"), h("span", {class: "grow"}), button("Set\u2026", setTopic)),
        topics.length ? plainTable("Topic permissions", [head, "Exchange", "write", "read", ""], topics.map(row => [other(row), name(row.exchange),
            pattern(row.write), pattern(row.read), remove(one => at("topic-permissions", one.vhost, one.user, one.exchange), row)]))
            : h("p", {class: "quiet"}, "None: routing keys are not checked.")));
}

/** Limits of a user or a virtual host; path is where each is put. */
export function limitsPanel({title, limits, kinds, path, changed, mayChange = true}) {
    const rows = Object.entries(limits ?? {});
    const set = () => ask({title, submit: "Set", fields: [{name: "kind", label: "Limit", type: "select", options: kinds},
        {name: "value", label: "At most (negative: no limit)", type: "number", required: true}],
    run: ({kind, value}) => send("PUT", `${path}/${at(kind)}`, {value})}).then(done => done && changed());
    return h("section", {class: "panel"}, h("div", {class: "head"}, h("h2", null, title), h("span", {class: "grow"}),
        mayChange ? h("button", {type: "button", onclick: set}, "Set\u2026") : null),
    rows.length ? plainTable(title, ["Limit", "At most", ""], rows.map(([kind, value]) => [kind, value < 0 ? "no limit" : number(value), mayChange
        ? h("button", {type: "button", class: "plain danger", onclick: async () => {
            if (await tell(() => send("DELETE", `${path}/${at(kind)}`), "Removed")) await changed();
        }}, "Remove") : ""])) : h("p", {class: "quiet"}, "None."));
}
