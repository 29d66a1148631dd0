// JSON paths: which values of a decoded body a path finds, and whether a condition on them holds.
//
//     $.order.items[0].price > 10      $..status = "failed"      $.tags[*] ~ ^urgent      $.retry
//
// Steps are .name, ['any name'], [number], [*] and ..name. A condition is = (or ==), !=, <, <=, >, >= or ~ (a regular
// expression) with a JSON value or a word; without one it is enough that something is found. What is looked at
// is bounded by the body, which is (values.js).

import {decodeJson} from "./json.js";
import {DecodeError, Exact, Marked} from "./values.js";

const STEP = /\.\.([\p{L}_$][\p{L}\p{N}_$-]*)|\.([\p{L}_$][\p{L}\p{N}_$-]*)|\.\*|\[\s*(?:(\*)|(-?[0-9]+)|'([^']*)'|"([^"]*)")\s*\]/uy;
const CONDITION = /^\s*(!=|<=|>=|==?|<|>|~)\s*([^]*)$/;
// Steps of one path, each of which may go through the whole body.
const MAX_STEPS = 32;

/** A function: decoded value -> whether the path and its condition hold. Throws DecodeError for a bad path. */
export function compile(source) {
    const {steps, rest} = parse(source.trim());
    const holds = condition(rest);
    return (value) => found(value, steps).some(holds);
}

function parse(source) {
    if (!source.startsWith("$")) {
        throw new DecodeError("a path begins with $");
    }
    const steps = [];
    let at = 1;
    for (;;) {
        STEP.lastIndex = at;
        const match = STEP.exec(source);
        if (!match) {
            break;
        }
        at = STEP.lastIndex;
        const [, anywhere, name, star, index, quoted, doubled] = match;
        if (anywhere !== undefined) {
            steps.push({anywhere});
        } else if (index !== undefined) {
            steps.push({index: Number(index)});
        } else if (star !== undefined || match[0] === ".*") {
            steps.push({all: true});
        } else {
            steps.push({name: name ?? quoted ?? doubled});
        }
        if (steps.length > MAX_STEPS) {
            throw new DecodeError(`a path has at most ${MAX_STEPS} steps`);
        }
    }
    return {steps, rest: source.slice(at)};
}

function condition(rest) {
    if (!rest.trim()) {
        return () => true;
    }
    const match = CONDITION.exec(rest);
    if (!match) {
        throw new DecodeError(`not understood: ${rest.trim()}`);
    }
    const [, operator, text] = match;
    if (operator === "~") {
        return matches(text.trim());
    }
    const wanted = wantedValue(text.trim());
    return (value) => compare(operator, plain(value), wanted);
}

function matches(pattern) {
    let compiled;
    try {
        compiled = new RegExp(pattern, "u");
    } catch (error) {
        throw new DecodeError(error.message);
    }
    return (value) => {
        const simple = plain(value);
        return simple !== null && typeof simple !== "object" && compiled.test(String(simple));
    };
}

function wantedValue(text) {
    try {
        return plain(decodeJson(text));
    } catch {
        return text;
    }
}

function plain(value) {
    if (value instanceof Exact) {
        return Number(value.text);
    }
    return value instanceof Marked ? plain(value.value) : value;
}

function compare(operator, value, wanted) {
    const areNumbers = [value, wanted].every((one) => typeof one === "number" || typeof one === "bigint");
    const areTexts = typeof value === "string" && typeof wanted === "string";
    // eslint-disable-next-line eqeqeq -- 1 and 1n are equal
    const isEqual = value === wanted || areNumbers && value == wanted;
    switch (operator) {
    case "=": case "==": return isEqual;
    case "!=": return !isEqual;
    case "<": return (areNumbers || areTexts) && value < wanted;
    case "<=": return (areNumbers || areTexts) && value <= wanted;
    case ">": return (areNumbers || areTexts) && value > wanted;
    default: return (areNumbers || areTexts) && value >= wanted;
    }
}

function found(root, steps) {
    let values = [root];
    for (const step of steps) {
        const next = new Set();
        for (const value of values) {
            take(value, step, next);
        }
        values = [...next];
    }
    return values;
}

function take(value, step, into) {
    if (value instanceof Marked) {
        take(value.value, step, into);
    } else if (step.anywhere !== undefined) {
        takeAnywhere(value, step.anywhere, into);
    } else if (step.all) {
        children(value).forEach((child) => into.add(child));
    } else if (step.index !== undefined && Array.isArray(value)) {
        const at = step.index < 0 ? value.length + step.index : step.index;
        if (at in value) {
            into.add(value[at]);
        }
    } else if (value instanceof Map && value.has(step.name ?? step.index)) {
        into.add(value.get(step.name ?? step.index));
    }
}

function takeAnywhere(value, name, into) {
    if (value instanceof Map && value.has(name)) {
        into.add(value.get(name));
    }
    for (const child of children(value)) {
        takeAnywhere(child, name, into);
    }
}

function children(value) {
    if (value instanceof Map) {
        return [...value.values()];
    }
    if (value instanceof Marked) {
        return [value.value];
    }
    return Array.isArray(value) ? value : [];
}
