// Questions and news.
//
//     const values = await ask({title, text, fields: [{name, label, code, type, value, options, required, hint, kinds}],
//                               submit: "Delete", danger: true, typed: "name that must be typed"})    null: cancelled
//     await ask({..., run: async values => {...}})    stays open with the reason where run is refused
//     await ask({..., preview: {label: "Preview", run: async values => node}})     shown in the dialogue, which stays
//     toast("Deleted", "good")                        kinds: good, bad, or none
//
// Types of fields: those of <input>, and select (options: [[value, label]...] or texts), textarea, arguments
// (lines of name = value, with JSON values; an object comes back; hints: rows of hints.js, which a click adds), check.
// code: what it is called in the API, beside the label. kinds: a field or hint that is only for these values of the
// select that has of: "kinds"; another value hides it.

import {h, replace} from "./dom.js";

const TOAST_MS = 6000;

export function toast(text, kind) {
    const shown = h("div", {class: kind ? `toast ${kind}` : "toast"}, h("span", null, text),
        h("button", {type: "button", class: "plain", "aria-label": "Close", onclick: () => shown.remove()}, "\u00d7"));
    document.getElementById("toasts").append(shown);
    if (kind !== "bad") setTimeout(() => shown.remove(), TOAST_MS);
    return shown;
}

/** Do it, and say how it ended: the text, or why it was refused. Whether it was done. */
export async function tell(work, done) {
    try {
        await work();
    } catch (error) {
        if (error.name !== "AbortError") toast(error.reason ?? error.message, "bad");
        return false;
    }
    if (done) toast(done, "good");
    return true;
}

export function ask({title, text, fields = [], submit = "OK", danger = false, typed, run, preview}) {
    return new Promise(resolve => {
        const {element, values} = form(typed === undefined ? fields : [...fields, {
            name: " typed", label: `Type ${typed} to confirm`, required: true, autocomplete: "off",
        }]);
        const fault = h("p", {class: "fault", role: "alert"});
        const seen = h("div", {class: "preview", role: "status"});
        const look = preview ? h("button", {type: "button", onclick: async () => {
            replace(fault);
            try {
                replace(seen, await preview.run(values()));
            } catch (error) {
                replace(fault, error.reason ?? error.message);
            }
        }}, preview.label) : null;
        const go = h("button", {type: "submit", class: danger ? "danger" : "primary"}, submit);
        let answer = null;
        const dialog = h("dialog", {"aria-label": title, onclose: () => {
            dialog.remove();
            resolve(answer);
        }}, h("form", {method: "dialog", onsubmit: async event => {
            event.preventDefault();
            let given;
            try {
                given = values();
            } catch (error) {
                replace(fault, error.message);
                return;
            }
            if (typed !== undefined && given[" typed"] !== typed) {
                replace(fault, "The text differs from the one asked for.");
                return;
            }
            delete given[" typed"];
            go.disabled = true;
            try {
                await run?.(given);
                answer = given;
                dialog.close();
            } catch (error) {
                replace(fault, error.reason ?? error.message);
            } finally {
                go.disabled = false;
            }
        }},
        h("h2", null, title), text ? h("div", {class: "text"}, text) : null, element, fault, seen,
        h("div", {class: "buttons"}, h("button", {type: "button", onclick: () => dialog.close()}, "Cancel"), look, go)));
        document.body.append(dialog);
        dialog.showModal();
        const controls = [...dialog.querySelectorAll("input, select, textarea")];
        (controls.find(one => one.required && one.value === "") ?? controls[0] ?? go).focus();
    });
}

/** {element, values()}: fields in a grid, as ask has them; values() raises Error where one makes no sense. */
export function form(fields) {
    const readers = fields.map(field => [field, control(field)]);
    const element = h("div", {class: "fields"}, readers.map(([field, one]) => {
        const node = one.element(field);
        if (field.kinds?.length) node.dataset.kinds = field.kinds.join(" ");
        return node;
    }));
    const chosen = readers.find(([field]) => field.of === "kinds");
    if (chosen) {
        const choose = () => {
            for (const node of element.querySelectorAll("[data-kinds]")) node.hidden = !node.dataset.kinds.split(" ").includes(chosen[1].value());
        };
        element.addEventListener("change", choose);
        choose();
    }
    return {element, values: () => Object.fromEntries(readers.map(([field, one]) => [field.name, one.value()]))};
}

// Buttons that add a line to an area of arguments, and what the argument does that one points at.
function hintList(area, hints) {
    const told = h("p", {class: "quiet", role: "status"}, "A click adds a line with an example; pointing at a name tells what it does.");
    const tellOf = ({name, help}) => () => replace(told, h("code", null, name), ` ${help}`);
    return h("div", {class: "hints"}, h("div", {class: "row", role: "group", "aria-label": "Add"}, hints.map(hint => h("button", {
        type: "button", class: "hint", "data-kinds": hint.kinds.length ? hint.kinds.join(" ") : null, title: hint.help, onfocus: tellOf(hint), onmouseenter: tellOf(hint),
        onclick: () => {
            const before = area.value.trimEnd();
            const start = `${before}${before ? "\n" : ""}${hint.name} = `;
            area.value = start + hint.example;
            area.focus();
            area.setSelectionRange(start.length, area.value.length);
        },
    }, `+ ${hint.name}`))), told);
}

function control(field) {
    const common = {
        name: field.name.trim(), required: field.required, "aria-describedby": null, autocomplete: field.autocomplete ?? "off",
        spellcheck: "false",
    };
    const labelled = node => () => h("label", {class: "field"}, h("span", {class: "label"}, field.label, field.code ? [" ", h("code", null, field.code)] : null), node,
        field.hint ? h("small", null, field.hint) : null);
    if (field.type === "check") {
        const box = h("input", {type: "checkbox", name: field.name, checked: Boolean(field.value)});
        return {value: () => box.checked, element: () => h("label", {class: "field check"}, box, h("span", null, field.label),
            field.hint ? h("small", null, field.hint) : null)};
    }
    if (field.type === "select") {
        const options = field.options.map(one => Array.isArray(one) ? one : [one, one]);
        const node = h("select", {...common, value: field.value ?? options[0]?.[0], onchange: field.onchange}, options.map(
            ([value, label]) => h("option", {value}, label)));
        return {value: () => node.value, element: labelled(node)};
    }
    if (field.type === "textarea" || field.type === "arguments") {
        const node = h("textarea", {...common, rows: field.rows ?? 3, value: field.type === "arguments"
            ? argumentLines(field.value ?? {}) : field.value ?? ""});
        const element = field.hints ? () => h("div", {class: "field"}, labelled(node)(), hintList(node, field.hints)) : labelled(node);
        return {value: () => field.type === "arguments" ? readArguments(node.value) : node.value, element};
    }
    const node = h("input", {
        ...common, type: field.type ?? "text", value: field.value ?? "", min: field.min, max: field.max, step: field.step,
        placeholder: field.placeholder, list: field.list, pattern: field.pattern,
    });
    return {value: () => field.type === "number" ? (node.value === "" ? null : Number(node.value)) : node.value, element: labelled(node)};
}

/** An object as lines of name = JSON; texts that can be nothing else stand without quotes. */
export function argumentLines(object) {
    return Object.entries(object).map(([key, value]) => {
        const plain = typeof value === "string" && value === value.trim() && !value.includes("\n") && !isJSON(value);
        return `${key} = ${plain && value ? value : JSON.stringify(value)}`;
    }).join("\n");
}

/** The object that such lines mean. Raises Error. */
export function readArguments(text) {
    const object = {};
    for (const line of text.split("\n")) {
        if (!line.trim()) continue;
        const cut = line.indexOf("=");
        if (cut < 1) throw new Error(`"${line.trim()}" is not of the form name = value`);
        const [key, value] = [line.slice(0, cut).trim(), line.slice(cut + 1).trim()];
        object[key] = isJSON(value) ? JSON.parse(value) : value;
    }
    return object;
}

function isJSON(text) {
    try {
        JSON.parse(text);
        return true;
    } catch {
        return false;
    }
}
