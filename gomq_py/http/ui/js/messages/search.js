// Searching the ready messages of a queue, a bounded part of it with each request: by the broker where it can judge,
// here where bodies must be unpacked or decoded first, or the condition is more than "equals".

import {at, send} from "../core/api.js";
import {read} from "../decode/body.js";
import {decodeJson} from "../decode/json.js";
import {compile} from "../decode/path.js";
import {peek, WHOLE_OCTETS, withOctets} from "./peek.js";

// Of messages that are looked at here: one request, and one search until somebody asks to go on.
const BATCH = 200;
const LOOKED_AT = 2000;
const SHOWN = 100;
// What the broker understands of a path: names and numbers, and "equals".
const SIMPLE = /^\$((?:\.[\p{L}_][\p{L}\p{N}_-]*|\[[0-9]{1,9}\])*)\s*(?:==?\s*([^]+))?$/u;

/**
 * {messages, examined, next}: those from `offset` on that meet what is `wanted` ({text, headers, routing_key, path}),
 * and where to go on, null at the end. Throws ApiError, DecodeError.
 */
export function search(vhost, queue, wanted, {offset = 0, signal} = {}) {
    const path = wanted.path?.trim();
    const simple = path ? SIMPLE.exec(path) : null;
    if (path && !(simple && onBroker(simple))) return scan(vhost, queue, wanted, {offset, signal});
    return ask(vhost, queue, wanted, simple, {offset, signal});
}

// A value that JavaScript rounds would not be found.
function onBroker([, , value]) {
    if (value === undefined) return true;
    try {
        const parsed = decodeJson(value.trim());
        return parsed === null || ["string", "number", "boolean"].includes(typeof parsed);
    } catch {
        return true; // a word
    }
}

async function ask(vhost, queue, {text, headers, routing_key: key}, simple, {offset, signal}) {
    const criteria = {offset, count: SHOWN};
    if (text) Object.assign(criteria, {text, ignore_case: true});
    if (headers && Object.keys(headers).length) criteria.headers = headers;
    if (key) criteria.routing_key = key;
    if (simple) {
        criteria.json_path = `$${simple[1]}`;
        if (simple[2] !== undefined) criteria.json_value = valueOf(simple[2].trim());
    }
    const found = await send("POST", `${at("queues", vhost, queue)}/search`, criteria, {signal});
    return {messages: found.messages.map(withOctets), examined: found.examined, next: found.next_offset};
}

function valueOf(text) {
    try {
        return JSON.parse(text);
    } catch {
        return text;
    }
}

async function scan(vhost, queue, wanted, {offset, signal}) {
    const holds = compile(wanted.path);
    const messages = [];
    let examined = 0, more = true;
    while (more && examined < LOOKED_AT && messages.length < SHOWN) {
        const batch = await peek(vhost, queue, {offset: offset + examined, count: BATCH, truncate: WHOLE_OCTETS, signal});
        for (const message of batch) {
            if (fits(message, wanted) && await holdsIn(message, holds)) messages.push(message);
        }
        examined += batch.length;
        more = batch.length === BATCH;
    }
    return {messages, examined, next: more ? offset + examined : null};
}

function fits(message, {text, headers = {}, routing_key: key}) {
    const own = message.properties?.headers ?? {};
    const isEqual = ([name, value]) => JSON.stringify(own[name]) === JSON.stringify(value);
    return Object.entries(headers).every(isEqual) && (!key || globbed(key).test(message.routing_key)) && (!text
        || new TextDecoder().decode(message.octets).toLowerCase().includes(text.toLowerCase()));
}

function globbed(pattern) {
    const escaped = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&");
    return new RegExp(`^${escaped.replace(/\*+/g, "[^]*").replace(/\?/g, "[^]")}$`, "u");
}

async function holdsIn(message, holds) {
    const {content_type: contentType = "", content_encoding: contentEncoding = ""} = message.properties ?? {};
    const {value} = await read(message.octets, {contentType: String(contentType), contentEncoding: String(contentEncoding)});
    return value !== undefined && holds(value);
}
