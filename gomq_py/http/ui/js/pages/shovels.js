// Shovels: how each does, and adding, pausing, resuming, restarting, deleting them.

import {at, get, send} from "../core/api.js";
import {ask, readArguments, tell} from "../core/dialog.js";
import {badge, h, name, nameLink} from "../core/dom.js";
import {number, rate} from "../core/format.js";
import {link} from "../core/router.js";
import {addStyle} from "../core/style.js";
import {table} from "../core/table.js";

const KINDS = {running: "good", starting: "warn", paused: "warn", waiting: "warn", error: "bad", terminated: "bad", stopped: "bad"};
const ACK_MODES = [["on-confirm", "on-confirm: no message is lost"], ["on-publish", "on-publish"], ["no-ack", "no-ack: fast; messages may be lost"]];

export const title = () => "Shovels";

export async function show(root, params, context) {
    await addStyle("operations");
    const path = one => at("shovels", one.vhost, one.name);
    const mayChange = context.session.can("policymaker");
    const each = (verb, done) => async rows => {
        for (const one of rows) await tell(() => send("PUT", `${path(one)}/${verb}`), `${one.name} ${done}`);
    };
    const list = table({
        id: "shovels", caption: "Shovels", context, order: "name", empty: "There are no shovels.",
        key: row => `${row.vhost}\n${row.name}`,
        load: query => get(context.vhost ? at("shovels", context.vhost) : "shovels", {signal: context.signal, query}),
        columns: [
            {key: "name", label: "Name", sort: "name", cell: row => name(row.name)},
            {key: "vhost", label: "Virtual host", sort: "vhost", cell: row => name(row.vhost)},
            {key: "state", label: "State", sort: "state", cell: row => badge(row.state, KINDS[row.state])},
            {key: "from", label: "From", cell: row => end(row, "src")},
            {key: "to", label: "To", cell: row => end(row, "dest")},
            {key: "lag", label: "Lag", sort: "lag", numeric: true, title: "Ready messages at the source", cell: row => number(row.lag)},
            {key: "rate", label: "Rate", sort: "rate", numeric: true, cell: row => rate(row.rate)},
            {key: "moved", label: "Moved", sort: "moved", numeric: true, cell: row => number(row.moved)},
            {key: "unconfirmed", label: "Unconfirmed", sort: "unconfirmed", numeric: true, hidden: true, cell: row => number(row.unconfirmed)},
            {key: "refused", label: "Refused", sort: "refused", numeric: true, hidden: true, cell: row => number(row.refused)},
            {key: "set_aside", label: "Set aside", sort: "set_aside", numeric: true, cell: row => number(row.set_aside)},
            {key: "reconnects", label: "Reconnects", sort: "reconnects", numeric: true, hidden: true, cell: row => number(row.reconnects)},
            {key: "type", label: "Set by", sort: "type", hidden: true, cell: row => row.type === "static" ? "configuration" : "parameter"},
            {key: "error", label: "Error", cell: row => row.error ? h("span", {class: "fault-text"}, name(row.error)) : ""},
        ],
        buttons: mayChange ? [h("button", {type: "button", class: "primary", onclick: async () => {
            if (await add(context)) await list.refresh();
        }}, "Add a shovel\u2026")] : null,
        actions: mayChange ? [
            {label: "Pause", needs: row => row.state !== "paused", run: each("pause", "is paused")},
            {label: "Resume", needs: row => row.state === "paused", run: each("resume", "goes on")},
            {label: "Restart", run: each("restart", "reconnects")},
            {label: "Delete\u2026", kind: "danger", needs: row => row.type !== "static", run: async rows => {
                await ask({
                    title: "Delete shovels", submit: "Delete", danger: true,
                    text: h("p", null, "The shovels stop and their definitions are deleted: ", rows.map((one, index) => [index ? ", " : "", name(one.name)]), "."),
                    run: async () => {
                        for (const one of rows) await send("DELETE", path(one));
                    },
                });
            }},
        ] : null,
    });
    root.append(h("h1", null, "Shovels"), list.element);
    await list.start();
}

function end(row, side) {
    const queue = row[`${side}_queue`], exchange = row[`${side}_exchange`], key = row[`${side}_exchange_key`];
    const isHere = /^amqps?:(\/\/)?$/.test(row[`${side}_uri`]);
    const thing = queue !== undefined ? (isHere ? nameLink(link("queues", row.vhost, queue), queue) : name(queue))
        : exchange !== undefined ? [name(exchange), key ? [" by ", name(key)] : null] : "as it came";
    return h("span", null, thing, isHere ? "" : [" at ", name(row[`${side}_uri`])]);
}

/** Asks for one and sets it. Whether it was set. */
async function add(context) {
    const vhosts = (await get("vhosts", {query: {columns: "name"}, signal: context.signal})).map(one => one.name);
    const answer = await ask({
        title: "Add a shovel", submit: "Add",
        text: h("p", {class: "quiet"}, "A URI without a host, amqp://, means this broker. Passwords are stored and never shown."),
        fields: [
            {name: "name", label: "Name", required: true},
            {name: "vhost", label: "Virtual host", type: "select", options: vhosts, value: context.vhost || vhosts[0]},
            {name: "src-uri", label: "From: URI", value: "amqp://", required: true},
            {name: "src-queue", label: "From: queue", hint: "or an exchange"},
            {name: "src-exchange", label: "From: exchange"},
            {name: "src-exchange-key", label: "From: routing key"},
            {name: "dest-uri", label: "To: URI", value: "amqp://", required: true, hint: "An https URI posts messages to a web server."},
            {name: "dest-queue", label: "To: queue"},
            {name: "dest-exchange", label: "To: exchange"},
            {name: "dest-exchange-key", label: "To: routing key"},
            {name: "ack-mode", label: "Acknowledgement", type: "select", options: ACK_MODES},
            {name: "src-prefetch-count", label: "Prefetch", type: "number", min: 0, max: 65535, value: "1000"},
            {name: "src-delete-after", label: "Delete after", hint: "never, queue-length, or a number of messages", value: "never"},
            {name: "more", label: "More keys", type: "textarea", hint: "One setting on each line, such as reconnect-delay = 5."},
        ],
        run: async given => {
            const {name: called, vhost, more, ...value} = given;
            for (const key of Object.keys(value)) if (value[key] === "" || value[key] === null) delete value[key];
            Object.assign(value, readArguments(more));
            await send("PUT", at("parameters", "shovel", vhost, called), {value});
        },
    });
    return answer !== null;
}

