// Federation: the links, how each does, and the upstreams that they take from.

import {at, get, send} from "../core/api.js";
import {ask, readArguments, tell} from "../core/dialog.js";
import {badge, h, name, nameLink} from "../core/dom.js";
import {number, rate} from "../core/format.js";
import {link} from "../core/router.js";
import {addStyle} from "../core/style.js";
import {table} from "../core/table.js";

const KINDS = {running: "good", starting: "warn", waiting: "warn", error: "bad", terminated: "bad", stopped: "bad"};
const COMPONENT = "federation-upstream";

export const title = () => "Federation";

export async function show(root, params, context) {
    await addStyle("operations");
    const mayChange = context.session.can("policymaker");
    const links = table({
        id: "federation-links", caption: "Links", context, order: "upstream", prefix: "l",
        empty: "There are no links: a policy with federation-upstream makes them.",
        key: row => `${row.vhost}\n${row.id}`,
        load: query => get(context.vhost ? at("federation-links", context.vhost) : "federation-links", {signal: context.signal, query}),
        columns: [
            {key: "what", label: "Exchange or queue", sort: "type", cell: row => row.type === "exchange"
                ? h("span", null, nameLink(link("exchanges", row.vhost, row.exchange), row.exchange), " (exchange)")
                : h("span", null, nameLink(link("queues", row.vhost, row.queue), row.queue), " (queue)")},
            {key: "vhost", label: "Virtual host", sort: "vhost", cell: row => name(row.vhost)},
            {key: "upstream", label: "Upstream", sort: "upstream", cell: row => name(row.upstream)},
            {key: "status", label: "Status", sort: "status", cell: row => h("span", null, badge(row.status, KINDS[row.status]),
                row.blocked ? badge("blocked", "warn") : null)},
            {key: "uri", label: "Address", sort: "uri", cell: row => name(row.uri)},
            {key: "unconfirmed", label: "Unconfirmed", sort: "unconfirmed", numeric: true, cell: row => number(row.unconfirmed)},
            {key: "rate", label: "Rate", sort: "rate", numeric: true, cell: row => rate(row.rate)},
            {key: "moved", label: "Moved", sort: "moved", numeric: true, cell: row => number(row.moved)},
            {key: "refused", label: "Refused", sort: "refused", numeric: true, hidden: true, cell: row => number(row.refused)},
            {key: "set_aside", label: "Set aside", sort: "set_aside", numeric: true, hidden: true, cell: row => number(row.set_aside)},
            {key: "reconnects", label: "Reconnects", sort: "reconnects", numeric: true, hidden: true, cell: row => number(row.reconnects)},
            {key: "error", label: "Error", cell: row => row.error || row.note
                ? h("span", {class: row.error ? "fault-text" : "note"}, name(row.error ?? row.note)) : ""},
        ],
        actions: mayChange ? [{label: "Restart", run: async rows => {
            for (const one of rows) {
                await tell(() => send("PUT", `${at("federation-links", "vhost", one.vhost, one.id)}/restart`), `${one.upstream} reconnects`);
            }
        }}] : null,
    });
    root.append(h("h1", null, "Federation"), h("h2", null, "Links"), links.element);
    await links.start();
    if (!mayChange) return; // who may not set parameters is not shown them either
    const upstreams = table({
        id: "federation-upstreams", caption: "Upstreams", context, order: "name", prefix: "u", empty: "There are no upstreams.",
        key: row => `${row.vhost}\n${row.name}`,
        load: () => get(context.vhost ? at("parameters", COMPONENT, context.vhost) : at("parameters", COMPONENT), {signal: context.signal}),
        text: row => `${row.name} ${row.vhost}`,
        columns: [
            {key: "name", label: "Name", sort: "name", cell: row => name(row.name)},
            {key: "vhost", label: "Virtual host", sort: "vhost", cell: row => name(row.vhost)},
            {key: "uri", label: "Address", cell: row => name([row.value?.uri].flat().join(", "))},
            {key: "settings", label: "Settings", cell: row => h("span", {class: "note"}, name(
                Object.entries(row.value ?? {}).filter(([key]) => key !== "uri").map(([key, value]) => `${key} = ${JSON.stringify(value)}`).join(", ")))},
            {key: "reason", label: "Error", cell: row => row.state
                ? h("span", null, badge(row.state, KINDS[row.state]), " ", h("span", {class: "fault-text"}, name(row.reason))) : ""},
        ],
        buttons: [h("button", {type: "button", class: "primary", onclick: async () => {
            if (await add(context)) await upstreams.refresh();
        }}, "Add an upstream\u2026")],
        actions: [{label: "Delete\u2026", kind: "danger", run: async rows => {
            await ask({
                title: "Delete upstreams", submit: "Delete", danger: true,
                text: h("p", null, "Their links are closed: ", rows.map((one, index) => [index ? ", " : "", name(one.name)]), "."),
                run: async () => {
                    for (const one of rows) await send("DELETE", at("parameters", COMPONENT, one.vhost, one.name));
                },
            });
        }}],
    });
    root.append(h("h2", null, "Upstreams"), upstreams.element);
    await upstreams.start();
}

/** Asks for one and sets it. Whether it was set. */
async function add(context) {
    const vhosts = (await get("vhosts", {query: {columns: "name"}, signal: context.signal})).map(one => one.name);
    const answer = await ask({
        title: "Add an upstream", submit: "Add",
        text: h("p", {class: "quiet"}, "A policy with federation-upstream = NAME connects exchanges or queues to this upstream."),
        fields: [
            {name: "name", label: "Name", required: true},
            {name: "vhost", label: "Virtual host", type: "select", options: vhosts, value: context.vhost || vhosts[0]},
            {name: "uri", label: "URI", required: true, placeholder: "amqps://user:password@broker.example.com"},
            {name: "ack-mode", label: "Acknowledgement", type: "select",
                options: [["on-confirm", "on-confirm: no message is lost"], ["on-publish", "on-publish"], ["no-ack", "no-ack: messages may be lost"]]},
            {name: "prefetch-count", label: "Prefetch", type: "number", min: 1, max: 65535},
            {name: "max-hops", label: "Maximum hops", type: "number", min: 0},
            {name: "more", label: "More keys", type: "textarea", hint: "One setting on each line: name = value."},
        ],
        run: async given => {
            const {name: called, vhost, more, ...value} = given;
            for (const key of Object.keys(value)) if (value[key] === "" || value[key] === null) delete value[key];
            Object.assign(value, readArguments(more));
            await send("PUT", at("parameters", COMPONENT, vhost, called), {value});
        },
    });
    return answer !== null;
}
