// The timeline of a stream: its messages from any offset or time on, where its consumers stand, how dense it is. Also a
// tab of the stream's own page.

import {at, get, send} from "../core/api.js";
import {tell} from "../core/dialog.js";
import {badge, h, name, nameLink, replace} from "../core/dom.js";
import {count, number, octets, time} from "../core/format.js";
import {link} from "../core/router.js";
import {ndjson, save, SHOWN_OCTETS, WHOLE_OCTETS, withOctets} from "../messages/peek.js";
import {addStyle} from "../messages/style.js";
import {publishAgain} from "../messages/templates.js";
import {messageView} from "../messages/view.js";

const SHOWN = 50;
const EVERY_MS = 5000;
const SCRUB_WAIT_MS = 120;

export const title = ({name: stream}) => `Timeline of ${stream}`;

export async function show(root, params, context) {
    root.append(h("h1", null, "Timeline of ", nameLink(link("queues", params.vhost, params.name), params.name)));
    await showTimeline(root, params, context);
}

export async function showTimeline(root, {vhost, name: stream}, context) {
    await addStyle();
    const path = at("streams", vhost, stream);
    const {signal, query} = context;
    const list = h("div", {class: "messages"}), told = h("p", {class: "quiet", role: "status"}), fault = h("p", {class: "fault", role: "alert"});
    const facts = h("p", {class: "quiet"}), readers = h("div"), density = h("div", {class: "density", "aria-hidden": "true"});
    const offset = h("input", {type: "number", min: "0", step: "1", name: "offset", value: query.offset ?? ""});
    const moment = h("input", {type: "datetime-local", step: "1", name: "time"});
    const scrub = h("input", {type: "range", class: "scrub", min: "0", max: "0", step: "1", "aria-label": "Offset"});
    let whole = null, shown = [], asked = null, timer = null;

    const load = async from => {
        const mine = asked = Symbol();
        replace(fault);
        try {
            const found = await get(`${path}/messages`, {signal, query: {offset: from, count: SHOWN, truncate: SHOWN_OCTETS, encoding: "base64"}});
            if (mine !== asked) return;
            shown = found.map(withOctets);
            const first = shown[0]?.position ?? from;
            scrub.value = String(first);
            offset.value = String(first);
            scrub.setAttribute("aria-valuetext", shown.length ? `${number(first)}, ${time(shown[0].timestamp)}` : number(first));
            context.setQuery({offset: first});
            replace(list, shown.length ? shown.map(message => messageView(message, {whole: wholeOf, actions}))
                : h("p", {class: "nothing"}, "No message has this offset or a later one yet."));
            replace(told, shown.length ? `Offsets ${number(first)} to ${number(shown.at(-1).position)}, from ${time(shown[0].timestamp)}`
                + ` to ${time(shown.at(-1).timestamp)}` : "The end of the stream");
            exporting.disabled = !shown.length;
        } catch (error) {
            if (mine !== asked || error.name === "AbortError") return;
            replace(fault, error.reason ?? error.message);
        }
    };
    const wholeOf = async message => {
        const [again] = await get(`${path}/messages`, {signal, query: {offset: message.position, count: 1, truncate: WHOLE_OCTETS, encoding: "base64"}});
        return again?.position === message.position ? withOctets(again) : message;
    };
    const actions = message => [h("button", {type: "button", onclick: () => publishAgain(vhost, message, wholeOf).catch(context.fail)},
        "Publish it again\u2026")];
    const refresh = async () => {
        const [described, {segments}] = await Promise.all([get(path, {signal}), get(`${path}/segments`, {signal})]);
        whole = described;
        scrub.min = String(whole.first_offset);
        scrub.max = String(Math.max(whole.first_offset, whole.next_offset - 1));
        const oldest = segments.find(one => one.count)?.first_timestamp_ms, newest = segments.findLast(one => one.count)?.last_timestamp_ms;
        replace(facts, `${count(whole.messages, "message")}, ${octets(whole.message_bytes)}; offsets ${number(whole.first_offset)} to `
            + `${number(Math.max(whole.first_offset, whole.next_offset - 1))}${oldest ? `; ${time(oldest)} to ${time(newest)}` : ""}`);
        if (oldest && !moment.value) moment.value = local(oldest);
        replace(density, bars(segments));
        drawReaders();
    };
    const drawReaders = () => {
        const rows = [
            ...(whole.consumers ?? []).map(one => ({...one, is: badge("reads", "good")})),
            ...(whole.offsets ?? []).map(one => ({...one, is: badge("stored offset"), kept: true, lag: Math.max(0, whole.next_offset - one.offset)})),
        ];
        replace(readers, rows.length ? h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Readers"}, h("table", {class: "list"},
            h("caption", {class: "unseen"}, "Readers"),
            h("thead", null, h("tr", null, h("th", {scope: "col"}, "Consumer"), h("th", {scope: "col"}, "Kind"), h("th", {scope: "col", class: "numeric"}, "At offset"),
                h("th", {scope: "col", class: "numeric"}, "Behind"), h("th", {scope: "col"}, h("span", {class: "unseen"}, "Actions")))),
            h("tbody", null, rows.map(one => h("tr", null, h("th", {scope: "row"}, name(one.consumer_tag)), h("td", null, one.is),
                h("td", {class: "numeric"}, number(one.offset)), h("td", {class: "numeric"}, number(one.lag)),
                h("td", null, h("div", {class: "row"}, h("button", {type: "button", onclick: () => load(one.offset)}, "Show from there"),
                    one.kept ? h("button", {type: "button", onclick: async () => {
                        if (await tell(() => send("DELETE", `${path}/offsets/${at(one.consumer_tag)}`), "Deleted: the consumer begins anew")) await refresh();
                    }}, "Forget") : null))))))) : null);
    };
    scrub.addEventListener("input", () => {
        offset.value = scrub.value;
        clearTimeout(timer);
        timer = setTimeout(() => load(Number(scrub.value)), SCRUB_WAIT_MS);
    });
    const step = by => load(Math.max(whole.first_offset, Number(offset.value || 0) + by));
    const exporting = h("button", {type: "button", onclick: () => save(ndjson(shown), `${stream.replace(/[^\w.-]+/g, "_")}.ndjson`)}, "Export NDJSON");
    root.append(
        h("form", {class: "panel", onsubmit: event => {
            event.preventDefault();
            load(Number(offset.value) || 0);
        }}, facts, density, scrub, h("div", {class: "inline-form"},
            h("label", {class: "field"}, h("span", {class: "label"}, "From offset"), offset), h("button", {type: "submit", class: "primary"}, "Show"),
            h("label", {class: "field"}, h("span", {class: "label"}, "From time"), moment),
            h("button", {type: "button", onclick: async () => {
                if (!moment.value) return;
                try {
                    const found = await get(`${path}/offset`, {signal, query: {timestamp: new Date(moment.value).getTime()}});
                    await load(found.offset);
                } catch (error) {
                    if (error.name !== "AbortError") replace(fault, error.reason ?? error.message);
                }
            }}, "Go to this time"),
            h("button", {type: "button", onclick: () => step(-SHOWN)}, "Earlier"), h("button", {type: "button", onclick: () => step(SHOWN)}, "Later"),
            h("button", {type: "button", onclick: async () => {
                await refresh();
                await load(Math.max(whole.first_offset, whole.next_offset - SHOWN));
            }}, "The end")), fault),
        readers, h("div", {class: "row"}, told, h("span", {class: "grow"}), exporting), list);
    await context.every(EVERY_MS, refresh);
    await load(query.offset === undefined ? Math.max(whole.first_offset, whole.next_offset - SHOWN) : Number(query.offset) || 0);
}

/** A time in Unix milliseconds as the field takes it. */
function local(ms) {
    const date = new Date(ms);
    return new Date(ms - date.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}

// How many messages a second each segment has, as far as its times tell: a bar each, as wide as its messages are many.
function bars(segments) {
    const known = segments.filter(one => one.count).map(one => ({
        ...one, rate: one.count / Math.max(1, (one.last_timestamp_ms - one.first_timestamp_ms) / 1000)}));
    const most = Math.max(...known.map(one => one.rate), 0);
    return known.slice(-200).map(one => h("meter", {min: "0", max: String(most || 1), value: one.rate, title:
        `${count(one.count, "message")} from ${time(one.first_timestamp_ms)}, ${number(Math.round(one.rate))} a second`}));
}
