// Messages that delayed exchanges hold until their time.

import {at, get} from "../core/api.js";
import {badge, h, name, nameLink, replace} from "../core/dom.js";
import {count, duration, number, time} from "../core/format.js";
import {link} from "../core/router.js";
import {table} from "../core/table.js";
import {withOctets} from "../messages/peek.js";
import {addStyle} from "../messages/style.js";
import {messageView} from "../messages/view.js";

const EVERY_MS = 5000;
const COUNTS = ["100", "500", "1000"];
const SHOWN_OCTETS = 64 * 1024;

export const title = ({name: exchange}) => exchange === undefined ? "Delayed" : `Delayed by ${exchange}`;

const dueText = ms => ms === null ? "" : `${time(ms)}, ${ms > Date.now() ? `in ${duration((ms - Date.now()) / 1000)}` : "now"}`;

export async function show(root, {vhost, name: exchange}, context) {
    if (exchange !== undefined) {
        await messagesOf(root, vhost, exchange, context);
        return;
    }
    const list = table({
        id: "delayed", caption: "Exchanges with delayed messages", context, order: "next_due", empty: "No exchange has delayed messages.",
        key: row => `${row.vhost}\n${row.exchange}`, href: row => link("delayed", row.vhost, row.exchange),
        load: () => get(context.vhost ? at("delayed", context.vhost) : "delayed", {signal: context.signal}),
        columns: [
            {key: "exchange", label: "Exchange", sort: "exchange", cell: row => nameLink(link("delayed", row.vhost, row.exchange), row.exchange)},
            {key: "vhost", label: "Virtual host", sort: "vhost", cell: row => name(row.vhost)},
            {key: "messages", label: "Messages", sort: "messages", numeric: true, cell: row => number(row.messages)},
            {key: "next", label: "Next is due", sort: "next_due", cell: row => dueText(row.next_due)},
            {key: "aside", label: "Set aside", sort: "messages_set_aside", numeric: true,
                cell: row => row.messages_set_aside ? badge(number(row.messages_set_aside), "bad", Object.keys(row.set_aside_reasons).join("\n")) : "0"},
        ],
    });
    root.append(h("h1", null, "Delayed"), list.element);
    await list.start();
}

async function messagesOf(root, vhost, exchange, context) {
    await addStyle();
    const list = h("div", {class: "messages"}), told = h("p", {class: "quiet", role: "status"});
    const size = h("select", {"aria-label": "Messages", value: context.query.count ?? "100", onchange: () => {
        context.setQuery({count: size.value});
        draw().catch(context.fail);
    }}, COUNTS.map(one => h("option", {value: one}, one)));
    let before = "";
    const draw = async () => {
        const found = await get(at("delayed", vhost, exchange), {signal: context.signal, query: {count: size.value, truncate: SHOWN_OCTETS}});
        const now = JSON.stringify(found.map(one => [one.due, one.timestamp, one.payload_bytes]));
        replace(told, `${count(found.length, "message")}, the next to go first`);
        if (now === before) return; // what somebody has opened stays open
        before = now;
        replace(list, found.length ? found.map((message, index) => h("div", {class: "due"},
            h("p", {class: "quiet"}, "due ", time(message.due), ` (in ${duration(Math.max(0, (message.due - Date.now()) / 1000))})`),
            messageView(withOctets({exchange, position: index, ...message})))) : h("p", {class: "nothing"}, "No delayed messages."));
    };
    root.append(h("div", {class: "head"}, h("h1", null, "Delayed by ", nameLink(link("exchanges", vhost, exchange), exchange)), told,
        h("span", {class: "grow"}), size), list);
    await context.every(EVERY_MS, draw);
}
