// Messages of a queue: looked at without taking them, searched, exported. Also a tab of the queue's own page.

import {at, get} from "../core/api.js";
import {readArguments} from "../core/dialog.js";
import {h, name, nameLink, replace} from "../core/dom.js";
import {count, number} from "../core/format.js";
import {go, href, link} from "../core/router.js";
import {ndjson, peek, save, whole} from "../messages/peek.js";
import {purge} from "../messages/purge.js";
import {search} from "../messages/search.js";
import {addStyle} from "../messages/style.js";
import {publishAgain} from "../messages/templates.js";
import {messageView} from "../messages/view.js";

const COUNTS = ["10", "50", "200", "1000"];

export const title = ({name: queue}) => `Messages of ${queue}`;

export async function show(root, params, context) {
    const {vhost, name: queue} = params;
    root.append(h("div", {class: "head"}, h("h1", null, "Messages of ", nameLink(link("queues", vhost, queue), queue)),
        h("span", {class: "quiet"}, "in ", name(vhost))));
    await showMessages(root, params, context);
}

/** The same without a heading. */
export async function showMessages(root, {vhost, name: queue}, context) {
    await addStyle();
    const {query} = context;
    if (context.queueType === undefined) {
        const found = await get(at("queues", vhost, queue), {signal: context.signal, query: {columns: "type"}});
        if (found.type === "stream") {
            go(href(`/streams/${at(vhost, queue)}/timeline`), {replaced: true});
            return;
        }
    }
    const list = h("div", {class: "messages", "data-messages": true});
    const told = h("p", {class: "quiet", role: "status"});
    const fault = h("p", {class: "fault", role: "alert"});
    const more = h("button", {type: "button", hidden: true}, "Go on");
    let shown = [], next = 0, wanted = {}, asked = null;

    const field = (label, node, kind) => h("label", {class: kind ? `field ${kind}` : "field"}, h("span", {class: "label"}, label), node);
    const input = (key, attributes) => h("input", {type: "text", name: key, value: query[key] ?? "", spellcheck: "false", autocomplete: "off", ...attributes});
    const offset = input("offset", {type: "number", min: "0", step: "1"});
    const size = h("select", {name: "count", value: query.count ?? "50"}, COUNTS.map(one => h("option", {value: one}, one)));
    const text = input("text", {type: "search"});
    const key = input("key", {placeholder: "orders.*"});
    const headers = input("header", {placeholder: "kind = bad"});
    const path = input("path", {placeholder: "$.order.total > 100"});

    const load = async (from, add) => {
        const mine = asked = Symbol();
        replace(fault);
        replace(told, "Looking\u2026");
        try {
            const most = Number(size.value);
            const isSearch = Object.values(wanted).some(Boolean);
            const found = isSearch ? await search(vhost, queue, wanted, {offset: from, signal: context.signal})
                : await peek(vhost, queue, {offset: from, count: most, signal: context.signal}).then(messages => ({
                    messages, examined: messages.length, next: messages.length === most ? from + most : null}));
            if (mine !== asked) return;
            shown = add ? [...shown, ...found.messages] : found.messages;
            next = found.next;
            draw(found.messages, add, isSearch, from + found.examined);
        } catch (error) {
            if (mine !== asked || error.name === "AbortError") return;
            replace(told);
            replace(fault, error.reason ?? error.message);
        }
    };
    const draw = (messages, add, isSearch, until) => {
        const views = messages.map(message => messageView(message, {
            whole: wholeOf, actions,
        }));
        if (add) list.append(...views);
        else replace(list, views.length ? views : h("p", {class: "nothing"}, isSearch ? "No message matches." : "The queue has no ready messages."));
        more.hidden = next === null;
        replace(told, isSearch ? `${count(shown.length, "message")} found among ${number(until)}` : count(shown.length, "message"),
            next === null ? "" : isSearch ? "; more messages can be searched" : "; there are more");
        for (const one of [exporting, opening]) one.disabled = !shown.length;
    };
    const wholeOf = message => whole(vhost, queue, message, context.signal);
    const actions = message => [h("button", {type: "button", onclick: () => publishAgain(vhost, message, wholeOf).catch(context.fail)},
        "Publish it again\u2026")];
    const start = () => {
        try {
            wanted = {
                text: text.value, routing_key: key.value, path: path.value.trim(),
                headers: headers.value.trim() ? readArguments(headers.value) : undefined,
            };
        } catch (error) {
            replace(fault, error.message);
            return undefined;
        }
        context.setQuery({offset: offset.value, count: size.value === "50" ? null : size.value, text: text.value, key: key.value,
            header: headers.value, path: path.value});
        return load(Number(offset.value) || 0, false);
    };
    more.addEventListener("click", () => load(next, true));
    const exporting = h("button", {type: "button", onclick: () => save(ndjson(shown), `${queue.replace(/[^\w.-]+/g, "_")}.ndjson`)},
        "Export NDJSON");
    const opening = h("button", {type: "button", onclick: () => {
        const all = [...list.querySelectorAll("details.message")];
        const open = !all.every(one => one.open);
        for (const one of all) one.open = open;
    }}, "Open all");

    root.append(
        h("form", {class: "panel", onsubmit: event => {
            event.preventDefault();
            start();
        }}, h("div", {class: "inline-form"},
            field("From position", offset, "narrow"), field("Messages", size), field("Body contains", text), field("Routing key", key),
            field("Header", headers), field("Path in the body", path), h("button", {type: "submit", class: "primary"}, "Show messages")), fault),
        h("div", {class: "row"}, told, h("span", {class: "grow"}), opening, exporting,
            h("a", {class: "button", href: href(`/queues/${at(vhost, queue)}/move`)}, "Move, copy, replay\u2026"),
            h("button", {type: "button", class: "danger", onclick: async () => {
                const {messages_ready: ready} = await get(at("queues", vhost, queue), {signal: context.signal});
                if (await purge(vhost, queue, ready)) await start();
            }}, "Purge\u2026")),
        list, more);
    await start();
}
