// Values: what the decoders of bodies make, how it is written as text, and the limits that all of them keep.
//
// A value is null, a boolean, a number, a BigInt, a string, a Uint8Array (octets), an Array, a Map (keys of any
// kind, in their order), an Exact (a number that JavaScript would round) or a Marked (a value with a tag or an
// extension's type). Limits are checked before anything is built: bodies come from anybody.

// A body larger than this, packed or unpacked, is shown as text or hex of its beginning alone.
export const MAX_OCTETS = 1024 * 1024;
export const MAX_DEPTH = 64;
// Of all lists and maps of a body together. 1 MiB of empty lists would be a million lines to show.
export const MAX_ITEMS = 200000;

export class DecodeError extends Error {
    constructor(text) {
        super(text);
        this.name = "DecodeError";
    }
}

export class Exact {
    constructor(text) {
        this.text = text;
    }
}

export class Marked {
    constructor(mark, value) {
        this.mark = mark;
        this.value = value;
    }
}

/** Counts items and depth of one body. */
export class Bounds {
    constructor() {
        this.items = 0;
        this.depth = 0;
    }

    enter() {
        this.depth += 1;
        if (this.depth > MAX_DEPTH) {
            throw new DecodeError(`nested deeper than ${MAX_DEPTH}`);
        }
    }

    leave() {
        this.depth -= 1;
    }

    add(count) {
        this.items += count;
        if (this.items > MAX_ITEMS) {
            throw new DecodeError(`more than ${MAX_ITEMS} items`);
        }
    }
}

export function checkSize(octets) {
    if (octets.length > MAX_OCTETS) {
        throw new DecodeError(`${octets.length} bytes: more than ${MAX_OCTETS} are not decoded`);
    }
}

/** Reads numbers of fixed widths, network order, and never beyond the end. */
export class Octets {
    constructor(octets) {
        checkSize(octets);
        this.octets = octets;
        this.at = 0;
        this.view = new DataView(octets.buffer, octets.byteOffset, octets.byteLength);
    }

    get left() {
        return this.octets.length - this.at;
    }

    /** Checks that `count` octets are there, and passes them: where they begin. */
    pass(count) {
        if (count > this.left) {
            throw new DecodeError(`ends within a value, at byte ${this.at}`);
        }
        const begin = this.at;
        this.at += Number(count);
        return begin;
    }

    take(count) {
        const begin = this.pass(count);
        return this.octets.subarray(begin, this.at);
    }

    text(count) {
        try {
            return new TextDecoder("utf-8", {fatal: true, ignoreBOM: true}).decode(this.take(count));
        } catch (error) {
            if (error instanceof DecodeError) {
                throw error;
            }
            throw new DecodeError(`a text is no UTF-8, before byte ${this.at}`);
        }
    }

    unsigned(width) {
        const begin = this.pass(width);
        switch (width) {
        case 1: return this.view.getUint8(begin);
        case 2: return this.view.getUint16(begin);
        case 4: return this.view.getUint32(begin);
        default: return small(this.view.getBigUint64(begin));
        }
    }

    signed(width) {
        const begin = this.pass(width);
        switch (width) {
        case 1: return this.view.getInt8(begin);
        case 2: return this.view.getInt16(begin);
        case 4: return this.view.getInt32(begin);
        default: return small(this.view.getBigInt64(begin));
        }
    }

    float(width) {
        const begin = this.pass(width);
        return width === 4 ? this.view.getFloat32(begin) : this.view.getFloat64(begin);
    }

    checkEnd() {
        if (this.left) {
            throw new DecodeError(`${this.left} bytes follow the value`);
        }
    }
}

/** Reads lists and maps, whose items its `item()` reads: what the binary formats have in common. */
export class Reader {
    constructor(octets) {
        this.input = new Octets(octets);
        this.bounds = new Bounds();
    }

    /** Each item is an octet at least. */
    check(count) {
        if (count > this.input.left) {
            throw new DecodeError(`${count} items are announced, ${this.input.left} bytes are left`);
        }
        this.bounds.add(Number(count));
    }

    list(count) {
        this.check(count);
        this.bounds.enter();
        const list = [];
        for (let number = 0; number < count; number += 1) {
            list.push(this.item());
        }
        this.bounds.leave();
        return list;
    }

    map(count) {
        this.check(typeof count === "bigint" ? count : 2 * count);
        this.bounds.enter();
        const map = new Map();
        for (let number = 0; number < count; number += 1) {
            const key = this.item();
            map.set(key, this.item());
        }
        this.bounds.leave();
        return map;
    }
}

/** A BigInt as a number where that is exact. */
export function small(big) {
    return big >= Number.MIN_SAFE_INTEGER && big <= Number.MAX_SAFE_INTEGER ? Number(big) : big;
}

/** The value as text, one item a line. */
export function shown(value) {
    const parts = [];
    write(value, "\n", parts);
    return parts.join("");
}

function write(value, newLine, parts) {
    if (value instanceof Map) {
        writeItems(value, "{", "}", newLine, parts, ([key, item], deeper) => {
            write(key, deeper, parts);
            parts.push(": ");
            write(item, deeper, parts);
        });
    } else if (Array.isArray(value)) {
        writeItems(value, "[", "]", newLine, parts, (item, deeper) => write(item, deeper, parts));
    } else if (value instanceof Marked) {
        parts.push(value.mark, "(");
        write(value.value, newLine, parts);
        parts.push(")");
    } else {
        parts.push(scalar(value));
    }
}

function writeItems(items, opening, closing, newLine, parts, writeItem) {
    const deeper = newLine + "  ";
    let before = opening + deeper;
    for (const item of items) {
        parts.push(before);
        writeItem(item, deeper);
        before = "," + deeper;
    }
    parts.push(before === opening + deeper ? opening + closing : newLine + closing);
}

function scalar(value) {
    if (typeof value === "string") {
        return JSON.stringify(value);
    }
    if (value instanceof Exact) {
        return value.text;
    }
    if (value instanceof Uint8Array) {
        return `h'${hexOf(value)}'`;
    }
    if (value === undefined) {
        return "undefined";
    }
    return Object.is(value, -0) ? "-0" : String(value);
}

const HEX = Array.from({length: 256}, (_, octet) => octet.toString(16).padStart(2, "0"));

export function hexOf(octets) {
    return Array.from(octets, (octet) => HEX[octet]).join("");
}
