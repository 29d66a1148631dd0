// What is to be published later: templates that somebody saved in this browser, and a message on its way from one page
// to the publish form.

import {toast} from "../core/dialog.js";
import {go, href} from "../core/router.js";
import {toBase64} from "../decode/octets.js";

const KEPT = "gomq.templates";
const ON_ITS_WAY = "gomq.on-its-way";
export const MOST_TEMPLATES = 100;

/** Templates by name. */
export function templates() {
    try {
        const kept = JSON.parse(localStorage.getItem(KEPT));
        return kept && typeof kept === "object" && !Array.isArray(kept) ? kept : {};
    } catch {
        return {};
    }
}

/** Raises Error where there is no room. */
export function saveTemplate(name, template) {
    const kept = templates();
    if (!Object.hasOwn(kept, name) && Object.keys(kept).length >= MOST_TEMPLATES) throw new Error(`at most ${MOST_TEMPLATES} templates can be saved`);
    try {
        localStorage.setItem(KEPT, JSON.stringify({...kept, [name]: template}));
    } catch {
        throw new Error("the browser's storage is full");
    }
}

export function deleteTemplate(name) {
    const kept = templates();
    delete kept[name];
    localStorage.setItem(KEPT, JSON.stringify(kept));
}

/** Show the publish form with this message; whole() brings all of its body. */
export async function publishAgain(vhost, message, whole) {
    const found = message.octets.length < message.payload_bytes ? await whole(message) : message;
    if (found.octets.length < found.payload_bytes) {
        toast("The body is too large for the form, or the message has changed its position in the queue.", "bad");
        return;
    }
    keep("message", {
        vhost, exchange: found.exchange, routing_key: found.routing_key, properties: found.properties, body: toBase64(found.octets),
    });
    go(href("/publish", {from: "message"}));
}

/** Hand something to the next page, once. */
export function keep(what, value) {
    try {
        sessionStorage.setItem(ON_ITS_WAY, JSON.stringify({what, value}));
    } catch {
        sessionStorage.removeItem(ON_ITS_WAY); // too large for it: the form is empty
    }
}

export function take(what) {
    try {
        const kept = JSON.parse(sessionStorage.getItem(ON_ITS_WAY));
        sessionStorage.removeItem(ON_ITS_WAY);
        return kept?.what === what ? kept.value : null;
    } catch {
        return null;
    }
}
