// Streams: the list. Their own page is a queue's.

import {at, get} from "../core/api.js";
import {h} from "../core/dom.js";
import {link} from "../core/router.js";
import {table} from "../core/table.js";
import {COLUMNS, declare} from "./queues.js";

const SHOWN = ["name", "vhost", "features", "policy", "state", "total", "growth", "in", "out", "consumers", "bytes"];
const MOST = 500;

export const title = () => "Streams";

export async function show(root, params, context) {
    const list = table({
        id: "streams", caption: "Streams", context, order: "name", empty: "There are no streams.",
        columns: SHOWN.map(key => ({...COLUMNS.find(column => column.key === key), hidden: false})),
        key: row => `${row.vhost}\n${row.name}`, href: row => link("queues", row.vhost, row.name), text: row => row.name,
        // By type and backwards: streams stand before classic queues.
        load: async () => (await get(context.vhost ? at("queues", context.vhost) : "queues", {
            signal: context.signal, query: {page: 1, page_size: MOST, sort: "type", sort_reverse: true},
        })).items.filter(row => row.type === "stream"),
        buttons: context.session.maySome("configure", context.vhost) ? [h("button", {type: "button", class: "primary",
            onclick: () => declare(context, "stream").then(done => done && list.refresh(), context.fail)}, "Declare\u2026")] : [],
    });
    root.append(h("h1", null, title()), list.element);
    await list.start();
}
