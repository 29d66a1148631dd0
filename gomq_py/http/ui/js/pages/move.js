// Moving, copying and replaying messages: first it is counted what would go where, then it is done, in parts, so that
// one sees how far it is and can stop.

import {at, get, send} from "../core/api.js";
import {form, readArguments} from "../core/dialog.js";
import {h, name, nameLink, replace, visible} from "../core/dom.js";
import {count, number} from "../core/format.js";
import {link} from "../core/router.js";
import {addStyle} from "../messages/style.js";
import {transfer} from "../messages/transfer.js";

const SUGGESTED = 500;

export const title = ({name: queue}) => `Move messages of ${queue}`;

export async function show(root, {vhost, name: queue}, context) {
    await addStyle();
    const {query} = context;
    const holder = h("div"), outcome = h("div", {class: "page", "aria-live": "polite"});
    const fault = h("p", {class: "fault", role: "alert"});
    const queues = h("datalist", {id: "move-queues"});
    const vhosts = (await get("vhosts", {signal: context.signal, query: {columns: "name"}})).map(one => one.name);
    let fields = null, kind = ["move", "copy", "replay"].includes(query.kind) ? query.kind : "move";

    const suggest = async wanted => {
        const found = await get(at("queues", wanted), {signal: context.signal, query: {
            columns: "name", disable_stats: true, page: 1, page_size: SUGGESTED, sort: "name"}});
        replace(queues, found.items.map(one => h("option", {value: one.name})));
    };
    const draw = () => {
        replace(outcome);
        fields = form([
            ...(kind === "replay" ? [
                {name: "to", label: "Back to", type: "select", options: [
                    ["queue", "the queue in which each message died first"], ["exchange", "the exchange to which it was published"]]},
                {name: "x_death", label: "Headers about deaths", type: "select", options: [["keep", "stay"], ["clean", "are removed"]]},
            ] : [
                {name: "destination", label: "To the queue", required: true, list: "move-queues", value: query.to ?? ""},
                {name: "destination_vhost", label: "In the virtual host", type: "select", value: vhost, options: vhosts.map(
                    one => [one, visible(one)]), onchange: event => suggest(event.target.value).catch(() => {})},
            ]),
            {name: "exchange", label: "Only with the exchange", placeholder: "any", hint: "* and ? are wildcards"},
            {name: "routing_key", label: "Only with the routing key", placeholder: "any", hint: "* and ? are wildcards"},
            {name: "headers", label: "Only with these headers, a line each", type: "textarea", rows: 2, hint: "name = value",
                value: query.headers ?? ""},
            {name: "count", label: "At most", type: "number", min: 1, step: 1, placeholder: "all", hint: "Messages, the oldest first; empty: all."},
        ]);
        replace(holder, fields.element);
    };
    const wanted = () => {
        const {headers, ...rest} = fields.values();
        const request = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== "" && value !== null));
        if (kind !== "replay" && !request.destination) throw new Error("To which queue?");
        const read = readArguments(headers);
        return Object.keys(read).length ? {...request, headers: read} : request;
    };
    const guarded = async work => {
        replace(fault);
        try {
            await work();
        } catch (error) {
            if (error.name !== "AbortError") replace(fault, error.reason ?? error.message);
        }
    };
    const tryOut = () => guarded(async () => {
        const request = wanted();
        const found = await send("POST", `${at("queues", vhost, queue)}/${kind}`, {...request, dry_run: true}, {signal: context.signal});
        const going = kind === "copy" ? found.copied : found.moved;
        const words = {move: "Move", copy: "Copy", replay: "Replay"}[kind];
        const go = h("button", {type: "button", class: "primary", disabled: going === 0, onclick: () => guarded(() => run(request, going))},
            `${words} ${count(going, "message")}`);
        replace(outcome, h("section", {class: "panel", "data-outcome": "dry"}, h("h2", null, "What would happen"),
            outcomeOf(found, going, kind), h("div", {class: "buttons"}, go)));
        go.focus();
    });
    const run = async (request, total) => {
        const bar = h("progress", {max: String(Math.max(total, 1)), value: 0, "aria-label": "Progress"});
        const told = h("p", {role: "status"}, `0 of ${number(total)}`);
        let stopped = false;
        const stop = h("button", {type: "button", onclick: () => {
            stopped = true;
            stop.disabled = true;
        }}, "Stop");
        replace(outcome, h("section", {class: "panel"}, h("h2", null, "Under way"), bar, told, h("div", {class: "buttons"}, stop)));
        const result = await transfer({
            path: `${at("queues", vhost, queue)}/${kind}`, request, total, isCopy: kind === "copy", signal: context.signal,
            isStopped: () => stopped,
            progress: done => {
                bar.value = done;
                replace(told, `${number(done)} of ${number(total)}`);
            },
        });
        replace(outcome, h("section", {class: "panel", "data-outcome": "done"}, h("h2", null, stopped ? "Stopped" : "Done"),
            outcomeOf(result, result.done, kind)));
    };

    const kinds = h("div", {class: "row", role: "radiogroup", "aria-label": "Actions"}, [["move", "Move"], ["copy", "Copy"],
        ["replay", "Replay dead letters"]].map(([value, label]) => h("label", {class: "check"}, h("input", {
        type: "radio", name: "kind", value, checked: value === kind, onchange: () => {
            kind = value;
            context.setQuery({kind});
            draw();
        }}), label)));
    root.append(h("div", {class: "head"}, h("h1", null, "Move messages of ", nameLink(link("queues", vhost, queue), queue)),
        h("span", {class: "quiet"}, "in ", name(vhost))),
    h("form", {class: "panel", onsubmit: event => {
        event.preventDefault();
        tryOut();
    }}, kinds, holder, queues, fault, h("div", {class: "buttons"}, h("button", {type: "submit", class: "primary"}, "Count first"))),
    outcome);
    draw();
    suggest(vhost).catch(() => {});
}

/** What an answer of a move says. */
export function outcomeOf(found, going, kind) {
    const rows = (what, entries) => entries.map(([label, value]) => h("tr", null, h("th", {scope: "row"}, what, name(label)),
        h("td", {class: "numeric"}, number(value))));
    const verb = {move: "go", copy: "are copied", replay: "go back"}[kind];
    return h("table", {class: "pairs"}, h("tbody", null,
        h("tr", null, h("th", {scope: "row"}, "looked at"), h("td", {class: "numeric"}, number(found.examined))),
        h("tr", null, h("th", {scope: "row"}, "fit"), h("td", {class: "numeric"}, number(found.matched))),
        h("tr", null, h("th", {scope: "row"}, verb), h("td", {class: "numeric"}, number(going))),
        rows("to ", Object.entries(found.targets)), rows("stay: ", Object.entries(found.stayed))));
}
