// Messages that delayed exchanges send again and again.

import {at, get, send} from "../core/api.js";
import {h, name, nameLink} from "../core/dom.js";
import {duration, number, octets, time} from "../core/format.js";
import {link} from "../core/router.js";
import {table} from "../core/table.js";
import {confirmed, each} from "./parts.js";

export const title = () => "Schedules";

const when = row => row.cron === null ? `every ${duration(row.every / 1000)}` : h("span", null, h("code", null, name(row.cron)), ` ${row.timezone ?? "UTC"}`);
const until = row => row.end === null ? "" : time(row.end);

export async function show(root, params, context) {
    const list = table({
        id: "schedules", caption: "Schedules", context, order: "next", empty: "There are no schedules.",
        key: row => `${row.vhost}\n${row.exchange}\n${row.name}`, text: row => `${row.name}\n${row.exchange}`,
        load: () => get(context.vhost ? at("schedules", context.vhost) : "schedules", {signal: context.signal}),
        columns: [
            {key: "name", label: "Name", sort: "name", cell: row => name(row.name)},
            {key: "vhost", label: "Virtual host", sort: "vhost", cell: row => name(row.vhost)},
            {key: "exchange", label: "Exchange", sort: "exchange", cell: row => nameLink(link("exchanges", row.vhost, row.exchange), row.exchange)},
            {key: "times", label: "Times", cell: when},
            {key: "next", label: "Next", sort: "next", cell: row => time(row.next)},
            {key: "end", label: "Ends", sort: "end", cell: until},
            {key: "missed", label: "Missed times", sort: "missed", cell: row => row.missed},
            {key: "key", label: "Routing key", sort: "routing_key", cell: row => name(row.routing_key)},
            {key: "size", label: "Body", sort: "payload_bytes", numeric: true, cell: row => octets(row.payload_bytes)},
            {key: "user", label: "User", sort: "user", cell: row => row.user === null ? "" : name(row.user)},
        ],
        actions: [{label: "Delete\u2026", kind: "danger", run: rows => confirmed("Delete schedules", [`These ${number(rows.length)} messages will not be sent any more:`,
            h("ul", {class: "some"}, rows.map(row => h("li", null, name(row.name))))],
        () => each(rows, row => send("DELETE", at("schedules", row.vhost, row.exchange, row.name)), "Deleted"))}],
    });
    root.append(h("h1", null, "Schedules"), h("p", {class: "quiet"}, "Messages that a delayed exchange repeats. The header x-schedule of a message makes a schedule."), list.element);
    await list.start();
}
