// What the arguments of queues and exchanges and the keys of policies are and do, as the broker describes them.

import {get} from "../core/api.js";

let rows = null;

/** The hints for dialogs: [{name, example, help, short, kinds}] of "queue", "exchange" or "policy". */
export async function hintsOf(of, fits = () => true) {
    rows ??= get("arguments");
    let all;
    try {
        all = await rows;
    } catch (error) {
        rows = null; // the next dialog asks again
        throw error;
    }
    return all.filter(row => row.of === of && fits(row)).map(row => ({name: row.name, example: row.example, kinds: row.kinds, help: helpOf(row), short: shortHelpOf(row)}));
}

const end = text => /[.:;]$/.test(text) ? text : `${text}.`;

function helpOf({effect, values, default: usual}) {
    return [effect, values ? `Values: ${end(values)}` : "", usual ? `Default: ${end(usual)}` : ""].filter(Boolean).join(" ");
}

// The first sentence and the default; the hint below the area of arguments has the rest.
const shortHelpOf = ({effect, default: usual}) => `${effect.split(/(?<=\.) /)[0]} Default: ${end(usual)}`;

/** A field for one argument, by its name; given: label, type and the like. */
export function argumentField(hints, argument, given) {
    const {short, kinds} = hints.find(one => one.name === argument);
    return {name: argument, code: argument, hint: short, kinds, ...given};
}

/** Takes the fields made by argumentField out of a dialog's values; those that were filled in come back as arguments. */
export function argumentsFrom(hints, values, kind) {
    const given = {...values.arguments};
    for (const {name, kinds} of hints) {
        const value = values[name];
        if (value !== null && value !== undefined && value !== "" && (!kinds.length || kinds.includes(kind))) given[name] = value;
    }
    return given;
}
