// JSON (RFC 8259) of a bounded depth; numbers are never rounded. JSON.parse would round what is beyond 2^53.

import {Bounds, DecodeError, Exact} from "./values.js";

const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const SPACE = /[ \t\n\r]*/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const ESCAPES = {'"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t"};
const WORDS = [["true", true], ["false", false], ["null", null]];

/** The value of a text. Throws DecodeError. */
export function decodeJson(text) {
    const reader = new Reader(text);
    const value = reader.value();
    reader.space();
    if (reader.at < text.length) {
        throw reader.error("something follows the value");
    }
    return value;
}

class Reader {
    constructor(text) {
        this.source = text;
        this.at = 0;
        this.bounds = new Bounds();
    }

    error(text) {
        return new DecodeError(`no JSON: ${text}, at character ${this.at}`);
    }

    match(pattern) {
        pattern.lastIndex = this.at;
        const found = pattern.exec(this.source);
        this.at = found ? pattern.lastIndex : this.at;
        return found;
    }

    space() {
        this.match(SPACE);
    }

    is(character) {
        if (this.source[this.at] !== character) {
            return false;
        }
        this.at += 1;
        return true;
    }

    value() {
        this.space();
        switch (this.source[this.at]) {
        case "{": return this.items("}", new Map(), (map) => {
            this.space();
            if (this.source[this.at] !== '"') {
                throw this.error("a name is missing");
            }
            const name = this.string();
            this.space();
            if (!this.is(":")) {
                throw this.error("a colon is missing");
            }
            map.set(name, this.value());
        });
        case "[": return this.items("]", [], (list) => list.push(this.value()));
        case '"': return this.string();
        default: return this.word();
        }
    }

    items(closing, into, add) {
        this.at += 1;
        this.bounds.enter();
        this.space();
        if (!this.is(closing)) {
            do {
                this.bounds.add(1);
                add(into);
                this.space();
            } while (this.is(","));
            if (!this.is(closing)) {
                throw this.error(`a comma or ${closing} is missing`);
            }
        }
        this.bounds.leave();
        return into;
    }

    string() {
        this.at += 1;
        let text = "";
        for (;;) {
            text += this.match(PLAIN)[0];
            if (this.is('"')) {
                return text;
            }
            if (!this.is("\\")) {
                throw this.error(this.at < this.source.length ? "a control character" : "a text does not end");
            }
            text += this.escape();
        }
    }

    escape() {
        const letter = this.source[this.at];
        if (letter === "u") {
            const digits = this.source.slice(this.at + 1, this.at + 5);
            if (!/^[0-9a-fA-F]{4}$/.test(digits)) {
                throw this.error("\\u without four hexadecimal digits");
            }
            this.at += 5;
            return String.fromCharCode(parseInt(digits, 16));
        }
        if (!Object.hasOwn(ESCAPES, letter)) {
            throw this.error("an escape that JSON does not have");
        }
        this.at += 1;
        return ESCAPES[letter];
    }

    word() {
        for (const [word, value] of WORDS) {
            if (this.source.startsWith(word, this.at)) {
                this.at += word.length;
                return value;
            }
        }
        const found = this.match(NUMBER);
        if (!found) {
            throw this.error("a value is missing");
        }
        const [digits, fraction, exponent] = found;
        const number = Number(digits);
        if (fraction === undefined && exponent === undefined) {
            return Number.isSafeInteger(number) ? number : BigInt(digits);
        }
        return Number.isFinite(number) && String(number) === digits ? number : new Exact(digits);
    }
}
