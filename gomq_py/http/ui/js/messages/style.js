// The look of pages about messages, which the first view does not need.

import {h} from "../core/dom.js";

let loaded = null;

/** Resolves once it is there. */
export function addStyle() {
    loaded ??= new Promise(resolve => document.head.append(
        h("link", {rel: "stylesheet", href: "/ui/css/messages.css", onload: resolve, onerror: resolve})));
    return loaded;
}
