// Octets: base64, hex with its text beside it, UTF-8, and gzip, each within the limits of values.js.

import {checkSize, DecodeError, MAX_OCTETS} from "./values.js";

const ROW = 16;
// Rows of hex that are shown at once: 64 KiB of a body.
export const MAX_ROWS = 4096;

export function fromBase64(text) {
    let binary;
    try {
        binary = atob(text);
    } catch {
        throw new DecodeError("this is not base64");
    }
    return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}

export function toBase64(octets) {
    let binary = "";
    for (let at = 0; at < octets.length; at += 4096) {
        binary += String.fromCharCode(...octets.subarray(at, at + 4096));
    }
    return btoa(binary);
}

/** Strict UTF-8; null where it is something else. */
export function textOf(octets) {
    try {
        return new TextDecoder("utf-8", {fatal: true, ignoreBOM: true}).decode(octets);
    } catch {
        return null;
    }
}

/** The classic dump: offset, sixteen octets, their ASCII. */
export function hexDump(octets, rows = MAX_ROWS) {
    const lines = [];
    for (let at = 0; at < octets.length && lines.length < rows; at += ROW) {
        const row = octets.subarray(at, at + ROW);
        const digits = Array.from(row, (octet) => octet.toString(16).padStart(2, "0"));
        const ascii = Array.from(row, (octet) => octet > 31 && octet < 127 ? String.fromCharCode(octet) : ".");
        lines.push(
            at.toString(16).padStart(8, "0") + "  " + digits.slice(0, 8).join(" ").padEnd(23) + "  "
            + digits.slice(8).join(" ").padEnd(23) + "  " + ascii.join(""));
    }
    return lines.join("\n");
}

export function fromHex(text) {
    const digits = text.replace(/\s+/g, "");
    if (digits.length % 2 || /[^0-9a-fA-F]/.test(digits)) {
        throw new DecodeError("these are no pairs of hexadecimal digits");
    }
    return Uint8Array.from({length: digits.length / 2}, (_, at) => parseInt(digits.slice(2 * at, 2 * at + 2), 16));
}

export function isGzip(octets) {
    return octets.length > 2 && octets[0] === 0x1f && octets[1] === 0x8b && octets[2] === 8;
}

/** What was packed with gzip, zlib's "deflate" or bare "deflate-raw". Stops as soon as it is more than the limit.
 * Throws DecodeError. */
export async function unpacked(octets, format = "gzip") {
    checkSize(octets);
    const reader = new Blob([octets]).stream().pipeThrough(new DecompressionStream(format)).getReader();
    const parts = [];
    let length = 0;
    try {
        for (let part = await reader.read(); !part.done; part = await reader.read()) {
            length += part.value.length;
            if (length > MAX_OCTETS) {
                throw new DecodeError(`unpacks to more than ${MAX_OCTETS} bytes`);
            }
            parts.push(part.value);
        }
    } catch (error) {
        reader.cancel().catch(() => {});
        throw error instanceof DecodeError ? error : new DecodeError(`no ${format}, or damaged`);
    }
    const whole = new Uint8Array(length);
    let at = 0;
    for (const part of parts) {
        whole.set(part, at);
        at += part.length;
    }
    return whole;
}
