// Peeking: ready messages of a queue as the API shows them, with their bodies as octets. The queue stays as it is.

import {at, get} from "../core/api.js";
import {fromBase64, toBase64} from "../decode/octets.js";

export const MOST = 1000;
// Octets of each body: enough to read, for lists; all that is decoded, for one message.
export const SHOWN_OCTETS = 64 * 1024;
export const WHOLE_OCTETS = 1024 * 1024;

/** Messages with octets, oldest first; count is at most MOST. */
export async function peek(vhost, queue, {offset = 0, count = 20, truncate = SHOWN_OCTETS, signal} = {}) {
    const found = await get(`${at("queues", vhost, queue)}/messages`, {
        signal, query: {offset, count, truncate, encoding: "base64"},
    });
    return found.map(withOctets);
}

/** A message of the API, asked for in base64 or as it is, with its body as octets. */
export function withOctets(message) {
    const {payload, payload_encoding: encoding, ...rest} = message;
    return {...rest, octets: encoding === "base64" ? fromBase64(payload) : new TextEncoder().encode(payload)};
}

/** The message again with all of its body that can be decoded; itself where another stands in its place. */
export async function whole(vhost, queue, message, signal) {
    const [again] = await peek(vhost, queue, {offset: message.position, count: 1, truncate: WHOLE_OCTETS, signal});
    return again && again.timestamp === message.timestamp && again.payload_bytes === message.payload_bytes ? again : message;
}

/** Lines of JSON, one a message: all that is known of it, the body as text where it is text. payload_cut: of a long
 * body there is only the beginning. */
export function ndjson(messages) {
    return messages.map(({octets, ...rest}) => {
        let payload, encoding = "string";
        try {
            payload = new TextDecoder("utf-8", {fatal: true, ignoreBOM: true}).decode(octets);
        } catch {
            encoding = "base64";
            payload = toBase64(octets);
        }
        const cut = octets.length < rest.payload_bytes ? {payload_cut: true} : {};
        return JSON.stringify({...rest, ...cut, payload, payload_encoding: encoding});
    }).join("\n") + "\n";
}

/** Give the browser a file to keep. */
export function save(text, fileName, type = "application/x-ndjson") {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], {type}));
    link.download = fileName;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
