// Publishing a message by hand, with every property, headers and a body as text, base64 or hex; templates.

import {at, get, send} from "../core/api.js";
import {argumentLines, ask, form, readArguments, toast} from "../core/dialog.js";
import {h, replace, visible} from "../core/dom.js";
import {count, time} from "../core/format.js";
import {fromBase64, fromHex, textOf, toBase64} from "../decode/octets.js";
import {addStyle} from "../messages/style.js";
import {deleteTemplate, saveTemplate, take, templates} from "../messages/templates.js";

const TEXTS = [
    ["content_type", "Content type"], ["content_encoding", "Content encoding"], ["correlation_id", "Correlation id"],
    ["reply_to", "Reply to"], ["expiration", "Expiration, ms"], ["message_id", "Message id"], ["type", "Type"], ["user_id", "User id"],
    ["app_id", "App id"],
];
const MOST_TIMES = 1000;
const LOG_LINES = 50;
const SUGGESTED = 500;

export const title = () => "Publish";

export async function show(root, params, context) {
    await addStyle();
    const vhosts = (await get("vhosts", {signal: context.signal, query: {columns: "name"}})).map(one => one.name);
    const given = context.query.from === "message" ? take("message") : null;
    const begun = given ? fromMessage(given) : {
        vhost: context.query.vhost ?? (context.vhost || (vhosts.includes("/") ? "/" : vhosts[0])),
        exchange: context.query.exchange ?? "", routing_key: context.query.key ?? "", properties: {delivery_mode: 2},
        payload: "", form: "text",
    };
    const log = h("ul", {class: "log"});
    const holder = h("div");
    const chosen = h("select", {"aria-label": "Template", onchange: () => {
        const template = templates()[chosen.value];
        if (template) draw({...template, vhost: vhosts.includes(template.vhost) ? template.vhost : begun.vhost});
    }});
    const fillTemplates = selected => {
        replace(chosen, h("option", {value: ""}, "Templates\u2026"), Object.keys(templates()).sort().map(
            one => h("option", {value: one}, visible(one))));
        chosen.value = selected ?? "";
    };
    let current = null;

    const draw = value => {
        current = publishForm(value, vhosts, context);
        replace(holder, current.element);
    };
    const say = (good, ...text) => {
        log.prepend(h("li", null, h("span", {class: "when"}, time(Date.now())), h("span", {class: good ? "good-text" : "bad-text"}, text)));
        while (log.childElementCount > LOG_LINES) log.lastElementChild.remove();
    };
    const fault = h("p", {class: "fault", role: "alert"});
    const button = h("button", {type: "submit", class: "primary"}, "Publish");
    const submit = async event => {
        event.preventDefault();
        replace(fault);
        button.disabled = true;
        try {
            const {times, ...message} = current.values();
            let routed = 0;
            for (let each = 0; each < times && !context.signal.aborted; each++) {
                const answer = await send("POST", `${at("exchanges", message.vhost, message.exchange || "amq.default")}/publish`, requestOf(message),
                    {signal: context.signal});
                routed += answer.routed ? 1 : 0;
            }
            const where = `${message.exchange === "" ? "the default exchange" : visible(message.exchange)}, key "${visible(message.routing_key)}"`;
            say(routed === times, routed === times ? `${count(times, "message")} to ${where}: a queue took ${times === 1 ? "it" : "each"}`
                : `${count(times, "message")} to ${where}: no queue took ${times === 1 ? "it" : `${times - routed} of them`}`);
        } catch (error) {
            if (error.name !== "AbortError") replace(fault, error.reason ?? error.message);
        } finally {
            button.disabled = false;
        }
    };
    root.append(h("div", {class: "head"}, h("h1", null, "Publish"), h("span", {class: "grow"}), chosen,
        h("button", {type: "button", onclick: async () => {
            let template;
            try {
                template = current.values();
            } catch (error) {
                replace(fault, error.message);
                return;
            }
            const answer = await ask({
                title: "Save as a template", submit: "Save",
                text: "It is kept in this browser alone, body and all.",
                fields: [{name: "name", label: "Name", required: true, value: chosen.value}],
                run: ({name: called}) => saveTemplate(called, template),
            });
            if (answer) {
                fillTemplates(answer.name);
                toast("Saved", "good");
            }
        }}, "Save\u2026"),
        h("button", {type: "button", onclick: () => {
            if (!chosen.value) return;
            deleteTemplate(chosen.value);
            fillTemplates();
        }}, "Forget")),
    h("form", {class: "panel", onsubmit: submit}, holder, fault, h("div", {class: "buttons"}, button)), h("div", {role: "log", "aria-label": "What was published"}, log));
    fillTemplates();
    draw(begun);
}

function fromMessage({vhost, exchange, routing_key: key, properties = {}, body}) {
    const text = textOf(fromBase64(body));
    return {vhost, exchange, routing_key: key, properties, payload: text ?? body, form: text === null ? "base64" : "text"};
}

/** The body of the API's request. Raises Error where the payload is not what it is said to be. */
function requestOf({routing_key: key, properties, payload, form: kind}) {
    let encoded = payload, encoding = "string";
    if (kind === "json") JSON.parse(payload);
    if (kind === "hex" || kind === "base64") {
        encoded = toBase64(kind === "hex" ? fromHex(payload) : fromBase64(payload.replace(/\s+/g, "")));
        encoding = "base64";
    }
    return {routing_key: key, properties, payload: encoded, payload_encoding: encoding};
}

function publishForm(value, vhosts, context) {
    const properties = value.properties ?? {};
    const exchanges = h("datalist", {id: "publish-exchanges"}), queues = h("datalist", {id: "publish-queues"});
    const top = form([
        {name: "vhost", label: "Virtual host", type: "select", options: vhosts.map(one => [one, visible(one)]), value: value.vhost, onchange: () => suggest()},
        {name: "exchange", label: "Exchange", value: value.exchange, list: "publish-exchanges", placeholder: "(default)",
            hint: "empty: the default exchange, whose routing keys are names of queues"},
        {name: "routing_key", label: "Routing key", value: value.routing_key, list: "publish-queues"},
    ]);
    const body = form([
        {name: "form", label: "Body is", type: "select", value: value.form, options: [["text", "Text"], ["json", "JSON, checked"], ["base64", "Base64"], ["hex", "Hex"]]},
        {name: "times", label: "Times", type: "number", min: 1, max: MOST_TIMES, step: 1, value: value.times ?? 1},
        {name: "payload", label: "Body", type: "textarea", rows: 8, value: value.payload},
    ]);
    const more = form([
        ...TEXTS.map(([key, label]) => ({name: key, label, value: properties[key] ?? ""})),
        {name: "delivery_mode", label: "Delivery mode", type: "select", value: String(properties.delivery_mode ?? ""),
            options: [["2", "2: persistent"], ["1", "1: transient"], ["", "not said"]]},
        {name: "priority", label: "Priority", type: "number", min: 0, max: 255, step: 1, value: properties.priority ?? ""},
        {name: "timestamp", label: "Timestamp, Unix seconds", type: "number", min: 0, step: 1, value: properties.timestamp ?? ""},
        {name: "headers", label: "Headers, a line each", type: "textarea", rows: 4, value: argumentLines(properties.headers ?? {}),
            hint: "name = value; numbers, true, [1, 2] and {...} are read as JSON"},
    ]);
    const suggest = () => {
        const {vhost} = top.values();
        const fill = async (list, what) => {
            const found = await get(at(what, vhost), {signal: context.signal, query: {
                columns: "name", page: 1, page_size: SUGGESTED, sort: "name", ...(what === "queues" ? {disable_stats: true} : {})}});
            replace(list, found.items.filter(one => one.name).map(one => h("option", {value: one.name})));
        };
        fill(exchanges, "exchanges").catch(() => {});
        fill(queues, "queues").catch(() => {});
    };
    suggest();
    const hasMore = Object.keys(properties).some(key => key !== "delivery_mode");
    const element = h("div", {class: "page"}, exchanges, queues, top.element, body.element,
        h("details", {open: hasMore}, h("summary", null, "Properties and headers"), more.element));
    return {
        element,
        values() {
            const {headers, ...rest} = more.values();
            const kept = Object.fromEntries(Object.entries(rest).filter(([, one]) => one !== "" && one !== null));
            if (kept.delivery_mode) kept.delivery_mode = Number(kept.delivery_mode);
            const read = readArguments(headers);
            if (Object.keys(read).length) kept.headers = read;
            const {times, ...message} = body.values();
            if (!(times >= 1 && times <= MOST_TIMES)) throw new Error(`1 to ${MOST_TIMES} times`);
            const said = {...top.values(), ...message, times, properties: kept};
            requestOf(said);
            return said;
        },
    };
}
