// A message on the page: one line that opens to its properties, headers, deaths and body. What users wrote is only
// ever text, with what cannot be seen made visible.

import {toast} from "../core/dialog.js";
import {badge, facts, h, name, replace, visible} from "../core/dom.js";
import {ago, number, octets, time} from "../core/format.js";
import {FORMS, read} from "../decode/body.js";
import {deathsOf} from "./deaths.js";

const PREVIEW = 160;
// Characters of a body that are laid out at once: more makes the browser stutter.
const LAID_OUT = 100000;
const FORM_LABELS = {
    auto: "Best fit", json: "JSON", text: "Text", hex: "Hex", base64: "Base64", msgpack: "MessagePack", cbor: "CBOR",
};
const KNOWN = [
    ["content_type", "Content type"], ["content_encoding", "Content encoding"], ["delivery_mode", "Delivery mode"],
    ["priority", "Priority"], ["correlation_id", "Correlation id"], ["reply_to", "Reply to"],
    ["expiration", "Expiration"], ["message_id", "Message id"], ["timestamp", "Timestamp"], ["type", "Type"],
    ["user_id", "User id"], ["app_id", "App id"], ["cluster_id", "Cluster id"],
];

/** Text of several lines: line ends and tabs stay, all else that cannot be seen is made visible. */
export function visibleLines(text) {
    return text.replace(/[^\n\t]+/g, visible);
}

/** A value of a header as text. */
export function valueText(value) {
    return typeof value === "string" ? value : JSON.stringify(value);
}

/** The beginning of a body in one line. */
export function preview(message) {
    const start = message.octets.subarray(0, PREVIEW);
    let text;
    try {
        // A character cut at the end is none of the body's faults.
        text = new TextDecoder("utf-8", {fatal: true, ignoreBOM: true}).decode(start, {stream: true});
    } catch {
        text = null;
    }
    if (text === null || /[\u0000-\u0008\u000e-\u001a]/.test(text)) {
        return Array.from(start.subarray(0, 32), octet => octet.toString(16).padStart(2, "0")).join(" ");
    }
    return visible(text.replace(/\s+/g, " "));
}

/**
 * One message. options: open, form, whole(message) which fetches all of a cut body, actions(message): nodes.
 * The element has `message`.
 */
export function messageView(message, options = {}) {
    const details = h("details", {class: "message", ontoggle: () => {
        if (details.open && !inner.childElementCount) draw();
    }}, h("summary", null, summaryLine(message)));
    const inner = h("div", {class: "inside"});
    const draw = () => replace(inner, contents(details.message, options, async () => {
        details.message = await options.whole(details.message);
        draw();
    }));
    details.message = message;
    details.append(inner);
    if (options.open) details.open = true;
    return details;
}

function summaryLine(message) {
    const properties = message.properties ?? {};
    const marks = [];
    if (message.redelivered) marks.push(badge("redelivered", "warn"));
    if (message.delivery_count > 0) marks.push(badge(`returned ${number(message.delivery_count)}\u00d7`, "warn"));
    if (deathsOf(message).length) marks.push(badge("dead letter", "bad"));
    if (properties.priority) marks.push(badge(`priority ${properties.priority}`));
    if (message.unreadable) marks.push(badge("unreadable", "bad", message.unreadable));
    return [
        h("span", {class: "at"}, message.position === undefined ? "" : number(message.position)),
        h("span", {class: "key"}, name(message.routing_key)),
        h("bdi", {class: "preview mono", dir: "auto"}, preview(message)),
        h("span", {class: "marks"}, marks),
        h("span", {class: "size"}, octets(message.payload_bytes)),
        h("span", {class: "age"}, message.timestamp ? ago(message.timestamp) : ""),
    ];
}

function contents(message, options, fetchWhole) {
    const properties = message.properties ?? {};
    const headers = Object.entries(properties.headers ?? {}).filter(([key]) => key !== "x-death");
    return [
        facts([
            ["Exchange", message.exchange === undefined ? null : message.exchange === "" ? "(default)" : name(message.exchange)],
            [message.exchange === undefined ? "Topic" : "Routing key", name(message.routing_key)],
            ["Arrived", message.timestamp ? time(message.timestamp) : null],
            ["Size", `${number(message.payload_bytes)} bytes`],
            ["Returned", message.delivery_count === undefined ? null : `${number(message.delivery_count)} times`],
            ["Malformed", message.unreadable ?? null],
            ...KNOWN.map(([key, label]) => [label, properties[key] === undefined ? null : name(propertyText(key, properties[key]))]),
        ]),
        deathsTable(message),
        headers.length ? h("table", {class: "pairs"}, h("caption", null, "Headers"), h("tbody", null, headers.map(
            ([key, value]) => h("tr", null, h("th", {scope: "row"}, name(key)), h("td", null, name(valueText(value))))))) : null,
        bodyPane(message, options.form ?? "auto", options.whole ? fetchWhole : null),
        options.actions ? h("div", {class: "row"}, options.actions(message)) : null,
    ];
}

function propertyText(key, value) {
    if (key === "timestamp" && Number.isFinite(value) && value < 8.64e12) return `${value} (${time(value * 1000)})`;
    if (key === "delivery_mode") return value === 2 ? "2 (persistent)" : String(value);
    return String(value);
}

function deathsTable(message) {
    const deaths = deathsOf(message);
    if (!deaths.length) return null;
    const columns = ["Reason", "Queue", "Exchange", "Routing keys", "Times", "When"];
    return h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Deaths"}, h("table", null,
        h("caption", null, "Why it was dead-lettered, latest first"),
        h("thead", null, h("tr", null, columns.map(label => h("th", {scope: "col"}, label)))),
        h("tbody", null, deaths.map(death => h("tr", null,
            h("th", {scope: "row"}, badge(String(death.reason), "bad")),
            h("td", null, name(death.queue)), h("td", null, death.exchange === "" ? "(default)" : name(death.exchange)),
            h("td", null, name(death["routing-keys"].join(", "))), h("td", {class: "numeric"}, String(death.count ?? 1)),
            h("td", null, deathTime(death.time)))))));
}

// Seconds, or the text that the API makes of a time of AMQP.
function deathTime(value) {
    const ms = typeof value === "number" ? value * 1000 : Date.parse(value);
    return Number.isFinite(ms) ? time(ms) : name(String(value ?? ""));
}

/** The body with the choice of its form; fetchWhole() brings what was cut. */
export function bodyPane(message, form = "auto", fetchWhole = null) {
    const text = h("pre", {class: "body", tabindex: "0", "aria-label": "Body"});
    const told = h("span", {class: "quiet", role: "status"});
    const more = h("button", {type: "button", hidden: true}, "Show the whole body");
    let raw = "";
    const choice = h("select", {"aria-label": "Format of the body", onchange: () => draw(choice.value)},
        FORMS.map(one => h("option", {value: one}, FORM_LABELS[one])));
    const draw = async wanted => {
        const {content_type: contentType = "", content_encoding: contentEncoding = ""} = message.properties ?? {};
        const shape = await read(message.octets, {form: wanted, contentType: String(contentType), contentEncoding: String(contentEncoding)});
        if (choice.value !== wanted) return;
        raw = shape.text;
        const cut = message.octets.length < message.payload_bytes
            ? `the first ${number(message.octets.length)} of ${number(message.payload_bytes)} bytes` : "";
        replace(told, [
            wanted === "auto" ? FORM_LABELS[shape.form] : "", shape.unpacked ? "unpacked" : "", cut, visible(shape.note),
        ].filter(Boolean).join(" \u00b7 "));
        replace(text, visibleLines(raw.slice(0, LAID_OUT)));
        more.hidden = raw.length <= LAID_OUT;
        text.classList.toggle("empty", raw === "");
    };
    more.addEventListener("click", () => {
        more.hidden = true;
        replace(text, visibleLines(raw));
    });
    choice.value = form;
    draw(form);
    return h("section", {class: "body-pane"},
        h("div", {class: "row"}, h("strong", null, "Body"), choice, told, h("span", {class: "grow"}),
            fetchWhole && message.octets.length < Math.min(message.payload_bytes, 1024 * 1024)
                ? h("button", {type: "button", onclick: fetchWhole}, "Load the whole body") : null,
            h("button", {type: "button", onclick: () => copy(raw)}, "Copy")),
        text, more);
}

/** To the clipboard, where the browser lets a page do so: over TLS, or from this machine. */
export async function copy(text) {
    try {
        await navigator.clipboard.writeText(text);
        toast("Copied", "good");
    } catch {
        toast("The browser refuses to copy: it needs HTTPS, or your permission.", "bad");
    }
}
