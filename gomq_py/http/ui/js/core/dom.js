// Elements: the one way of making them. What users wrote is only ever text; nothing here reads HTML.
//
//     h("a", {href: "#/", class: "big", onclick: event => {...}}, "text", node, [more], null)
//     replace(node, ...children)
//     name("what a user called something")     shown: control characters visible, direction isolated

const SVG = "http://www.w3.org/2000/svg";

/** An element. Functions named on... listen; true is an empty attribute; null, undefined and false are none. */
export function h(tag, attributes, ...children) {
    return fill(document.createElement(tag), attributes, children);
}

/** The same of SVG. */
export function s(tag, attributes, ...children) {
    return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
    for (const [key, value] of Object.entries(attributes ?? {})) {
        if (value === null || value === undefined || value === false) continue;
        if (key.startsWith("on")) {
            if (typeof value !== "function") throw new TypeError(`${key} is no function`);
            element.addEventListener(key.slice(2), value);
        } else if (key === "style") {
            throw new TypeError("no inline styles: write a class");
        } else if (key === "value" || key === "checked" || key === "selected" || key === "indeterminate") {
            element[key] = value;
        } else if ((key === "href" || key === "src") && /^\s*javascript:/i.test(value)) {
            throw new TypeError("no scripts in addresses");
        } else {
            element.setAttribute(key, value === true ? "" : String(value));
        }
    }
    append(element, children);
    if (tagTakesValueLast(element) && attributes && "value" in attributes) element.value = attributes.value;
    return element;
}

// A select has its value only once it has its options.
function tagTakesValueLast(element) {
    return element instanceof HTMLSelectElement;
}

function append(element, children) {
    for (const child of children) {
        if (child === null || child === undefined || child === false) continue;
        if (Array.isArray(child)) append(element, child);
        else element.append(child instanceof Node ? child : String(child));
    }
}

/** Everything in the element goes; the children come. */
export function replace(element, ...children) {
    element.replaceChildren();
    append(element, children);
    return element;
}

// Characters that are not seen, or change the order of what is: C0, DEL, C1, soft hyphen, marks of direction,
// zero width, line and paragraph separator, tags, surrogates without their other half.
const HIDDEN = new RegExp(
    "[\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f" +
    "\\ufeff\\ufff9-\\ufffb]|[\\u{e0000}-\\u{e007f}]|\\p{Surrogate}", "gu");

/** Text with what cannot be seen made visible: U+0000 as its symbol, others as U+XXXX in brackets. */
export function visible(text) {
    return String(text).replace(HIDDEN, one => {
        const code = one.codePointAt(0);
        if (code < 0x20) return String.fromCodePoint(0x2400 + code);
        if (code === 0x7f) return "\u2421";
        return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
    });
}

/** A name or other text of a user: visible, isolated from the direction of what stands around it. */
export function name(text, attributes) {
    const value = visible(text);
    return h("bdi", {dir: "auto", class: "name", title: value.length > 40 ? value : null, ...attributes}, value);
}

/** A link with a name as its text. */
export function nameLink(href, text) {
    return h("a", {href}, name(text));
}

/** A small mark: D, AD, "paused"... kind: good, warn, bad, quiet or none. */
export function badge(text, kind, title) {
    return h("span", {class: kind ? `badge ${kind}` : "badge", title}, text);
}

/** A term list of [label, value] pairs; pairs whose value is null or undefined are left out. */
export function facts(pairs) {
    return h("dl", {class: "facts"}, pairs.filter(([, value]) => value !== null && value !== undefined).map(
        ([label, value]) => h("div", null, h("dt", null, label), h("dd", null, value))));
}

/** A section with a heading. */
export function panel(title, ...children) {
    return h("section", {class: "panel"}, title ? h("h2", null, title) : null, children);
}
