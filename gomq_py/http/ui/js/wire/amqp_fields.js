// AMQP 0-9-1 field tables and the properties of a message, to and from JavaScript's values.
//
// Read are Maps, Arrays, Uint8Arrays, BigInts where a number would not be exact, and Marked for decimals and
// times (decode/values.js). Written are plain objects too, as JSON makes them.

import {Marked, small} from "../decode/values.js";
import {WireError, Writer} from "./bytes.js";

const MAX_DEPTH = 64;
// In the order of their bits, from the highest: name, how it is written.
export const PROPERTIES = [
    ["content_type", "text"], ["content_encoding", "text"], ["headers", "table"], ["delivery_mode", "octet"],
    ["priority", "octet"], ["correlation_id", "text"], ["reply_to", "text"], ["expiration", "text"],
    ["message_id", "text"], ["timestamp", "time"], ["type", "text"], ["user_id", "text"], ["app_id", "text"],
    ["cluster_id", "text"],
];

export function writeTable(writer, table, depth = 0) {
    checkDepth(depth);
    const inner = new Writer();
    for (const [name, value] of table instanceof Map ? table : Object.entries(table)) {
        inner.text(name, 1);
        writeField(inner, value, depth);
    }
    return writer.sized(inner.done(), 4);
}

function checkDepth(depth) {
    if (depth > MAX_DEPTH) {
        throw new WireError(`a table nested deeper than ${MAX_DEPTH}`);
    }
}

function kind(writer, letter) {
    return writer.u8(letter.charCodeAt(0));
}

function writeField(writer, value, depth) {
    if (value === null || value === undefined) {
        kind(writer, "V");
    } else if (typeof value === "boolean") {
        kind(writer, "t").u8(value ? 1 : 0);
    } else if (typeof value === "string") {
        kind(writer, "S").text(value, 4);
    } else if (typeof value === "bigint" || Number.isInteger(value)) {
        writeInteger(writer, value);
    } else if (typeof value === "number") {
        kind(writer, "d");
        writer.view.setFloat64(writer.room(8), value);
    } else if (value instanceof Uint8Array) {
        kind(writer, "x").sized(value, 4);
    } else if (Array.isArray(value)) {
        checkDepth(depth + 1);
        const inner = new Writer();
        value.forEach((item) => writeField(inner, item, depth + 1));
        kind(writer, "A").sized(inner.done(), 4);
    } else {
        writeTable(kind(writer, "F"), value, depth + 1);
    }
}

function writeInteger(writer, value) {
    if (value >= -0x80000000 && value <= 0x7fffffff) {
        kind(writer, "I");
        writer.view.setInt32(writer.room(4), Number(value));
        return;
    }
    const big = BigInt(value);
    if (BigInt.asIntN(64, big) !== big) {
        throw new WireError(`${value} does not fit into 64 bits`);
    }
    kind(writer, "l");
    writer.view.setBigInt64(writer.room(8), big);
}

/** Reads with the Reader of bytes.js. */
export function readTable(reader, depth = 0) {
    checkDepth(depth);
    const end = reader.u32() + reader.at;
    if (end > reader.octets.length) {
        throw new WireError("a table is longer than what holds it");
    }
    const table = new Map();
    while (reader.at < end) {
        const name = reader.text(1);
        table.set(name, readField(reader, depth));
    }
    return table;
}

function readField(reader, depth) {
    const letter = String.fromCharCode(reader.u8());
    const {view} = reader;
    switch (letter) {
    case "t": return reader.u8() !== 0;
    case "b": return view.getInt8(reader.pass(1));
    case "B": return reader.u8();
    case "s": case "U": return view.getInt16(reader.pass(2));
    case "u": return reader.u16();
    case "I": return view.getInt32(reader.pass(4));
    case "i": return reader.u32();
    case "l": case "L": return small(view.getBigInt64(reader.pass(8)));
    case "f": return view.getFloat32(reader.pass(4));
    case "d": return view.getFloat64(reader.pass(8));
    case "D": return new Marked(`decimal ${reader.u8()}`, view.getInt32(reader.pass(4)));
    case "S": return reader.text(4);
    case "T": return new Marked("timestamp", small(reader.u64()));
    case "V": return null;
    case "x": return reader.sized(4).slice();
    case "F": return readTable(reader, depth + 1);
    case "A": return readArray(reader, depth + 1);
    default: throw new WireError(`the field type '${letter}' is unknown`);
    }
}

function readArray(reader, depth) {
    checkDepth(depth);
    const end = reader.u32() + reader.at;
    if (end > reader.octets.length) {
        throw new WireError("a list is longer than what holds it");
    }
    const list = [];
    while (reader.at < end) {
        list.push(readField(reader, depth));
    }
    return list;
}

export function writeProperties(writer, properties) {
    let flags = 0;
    const inner = new Writer();
    PROPERTIES.forEach(([name, how], number) => {
        const value = properties[name];
        if (value === undefined || value === null || value === "") {
            return;
        }
        flags |= 1 << (15 - number);
        switch (how) {
        case "text": inner.text(value, 1); break;
        case "table": writeTable(inner, value); break;
        case "octet": inner.u8(value); break;
        default: inner.u64(value);
        }
    });
    return writer.u16(flags).raw(inner.done());
}

export function readProperties(reader) {
    const flags = reader.u16();
    const properties = {};
    PROPERTIES.forEach(([name, how], number) => {
        if (!(flags & 1 << (15 - number))) {
            return;
        }
        switch (how) {
        case "text": properties[name] = reader.text(1); break;
        case "table": properties[name] = readTable(reader); break;
        case "octet": properties[name] = reader.u8(); break;
        default: properties[name] = small(reader.u64());
        }
    });
    return properties;
}
