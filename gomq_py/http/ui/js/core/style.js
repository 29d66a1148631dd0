// Style sheets that the first view does not need.

import {h} from "./dom.js";

const loaded = new Map();

/** Resolves once the sheet of this name, below /ui/css/, is in force. */
export function addStyle(name) {
    if (!loaded.has(name)) {
        loaded.set(name, new Promise(resolve => document.head.append(
            h("link", {rel: "stylesheet", href: `/ui/css/${name}.css`, onload: resolve, onerror: resolve}))));
    }
    return loaded.get(name);
}
