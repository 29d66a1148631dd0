// Bodies: octets of a message as something to read, in the form that somebody chose or that fits best.
//
// `read(octets, {form, contentType, contentEncoding})` gives {form, text, value, unpacked, note}: `value` where
// the form has values (for searches by path), `note` what was not possible. Nothing here throws.

import {decodeCbor} from "./cbor.js";
import {decodeJson} from "./json.js";
import {decodeMsgpack} from "./msgpack.js";
import {hexDump, isGzip, MAX_ROWS, textOf, toBase64, unpacked} from "./octets.js";
import {checkSize, DecodeError, MAX_OCTETS, shown} from "./values.js";

export const FORMS = ["auto", "json", "text", "hex", "base64", "msgpack", "cbor"];

const VALUES = {
    json: (octets) => {
        checkSize(octets);
        const text = textOf(octets);
        if (text === null) {
            throw new DecodeError("no JSON: it is no UTF-8");
        }
        return decodeJson(text);
    },
    msgpack: decodeMsgpack,
    cbor: decodeCbor,
};
const TYPES = [
    [/json/i, "json"], [/msgpack|messagepack/i, "msgpack"], [/cbor/i, "cbor"], [/^text\//i, "text"],
];
const PACKED = {gzip: "gzip", "x-gzip": "gzip", deflate: "deflate", zlib: "deflate"};

export async function read(octets, {form = "auto", contentType = "", contentEncoding = ""} = {}) {
    const {inner, wasPacked, note} = await unpackedIfPacked(octets, contentEncoding);
    const shape = form === "auto" ? guessed(inner, contentType) : as(inner, form);
    return {...shape, octets: inner, unpacked: wasPacked, note: [note, shape.note].filter(Boolean).join("; ")};
}

async function unpackedIfPacked(octets, contentEncoding) {
    const format = PACKED[contentEncoding.trim().toLowerCase()] ?? (isGzip(octets) ? "gzip" : null);
    if (format === null || !octets.length) {
        return {inner: octets, wasPacked: false, note: ""};
    }
    try {
        return {inner: await unpacked(octets, format), wasPacked: true, note: ""};
    } catch (error) {
        return {inner: octets, wasPacked: false, note: error.message};
    }
}

function guessed(octets, contentType) {
    const [, named] = TYPES.find(([pattern]) => pattern.test(contentType)) ?? [];
    let refused = "";
    if (named) {
        const shape = as(octets, named);
        if (!shape.note) {
            return shape;
        }
        refused = `the content type says ${contentType}, but: ${shape.note}`;
    }
    const text = octets.length <= MAX_OCTETS ? textOf(octets) : null;
    if (text !== null && /^\s*[[{"]/.test(text) && !refused) {
        const shape = as(octets, "json");
        if (!shape.note) {
            return shape;
        }
    }
    if (text !== null && !/[\u0000-\u0008\u000e-\u001a]/.test(text)) {
        return {form: "text", text, value: text, note: refused};
    }
    const binary = guessedBinary(octets);
    return binary ? {...binary, note: refused} : {...as(octets, "hex"), note: refused};
}

/** MessagePack or CBOR where the whole body is exactly one map or list: nearly every octet is a number in
 * either, so that less would be found in anything. */
function guessedBinary(octets) {
    for (const form of ["msgpack", "cbor"]) {
        let value;
        try {
            value = VALUES[form](octets);
        } catch {
            continue;
        }
        if (value instanceof Map || Array.isArray(value)) {
            return {form, text: shown(value), value};
        }
    }
    return null;
}

function as(octets, form) {
    if (form === "hex") {
        const rest = octets.length > MAX_ROWS * 16 ? `the first ${MAX_ROWS * 16} bytes` : "";
        return {form, text: hexDump(octets), value: undefined, note: rest};
    }
    if (form === "base64") {
        return {form, text: toBase64(octets), value: undefined, note: ""};
    }
    if (form === "text") {
        const strict = textOf(octets);
        const text = strict ?? new TextDecoder("utf-8").decode(octets);
        return {form, text, value: text, note: strict === null ? "not UTF-8: \ufffd replaces invalid bytes" : ""};
    }
    try {
        const value = VALUES[form](octets);
        return {form, text: shown(value), value, note: ""};
    } catch (error) {
        if (!(error instanceof DecodeError)) {
            throw error;
        }
        return {...as(octets, textOf(octets) === null ? "hex" : "text"), note: error.message};
    }
}
