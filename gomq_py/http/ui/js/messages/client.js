// What the two clients in the page show alike: a log in, a log of what happened, and the messages that came.

import {h, name, panel, replace} from "../core/dom.js";
import {count, time} from "../core/format.js";

// Messages and lines that stay: older ones go. Bodies are of 1 MiB at most.
const MESSAGES = 100;
const LINES = 100;

/** Where WebSockets of this broker are. */
export function socketUrl(path) {
    return `${location.protocol === "https:" ? "wss:" : "ws:"}//${location.host}${path}`;
}

/** {element, say(good, text), state(text)}: what happened, the latest first. */
export function journal() {
    const dot = h("span", {class: "dot"}), text = h("span", {role: "status"}, "not connected");
    const lines = h("ul", {class: "log"});
    return {
        status: h("span", {class: "row"}, dot, text),
        element: h("div", {role: "log", "aria-label": "Log"}, lines),
        say(good, ...what) {
            lines.prepend(h("li", null, h("span", {class: "when"}, time(Date.now())), h("span", {class: good ? "good-text" : "bad-text"}, what)));
            while (lines.childElementCount > LINES) lines.lastElementChild.remove();
        },
        state(isOpen, what) {
            dot.classList.toggle("on", isOpen);
            replace(text, what);
        },
    };
}

/** {element, add(node), clear()}: messages that came, the latest first. */
export function inbox() {
    const told = h("span", {class: "quiet", role: "status"}, "no messages yet");
    const list = h("div", {class: "messages"});
    let came = 0;
    return {
        get next() {
            return came;
        },
        element: h("section", {class: "page"}, h("div", {class: "head"}, h("h2", null, "Messages"), told, h("span", {class: "grow"}),
            h("button", {type: "button", onclick: () => replace(list)}, "Clear")), list),
        add(node) {
            came++;
            list.prepend(node);
            while (list.childElementCount > MESSAGES) list.lastElementChild.remove();
            replace(told, `${count(came, "message")} came${came > MESSAGES ? `, the latest ${MESSAGES} are here` : ""}`);
        },
    };
}

/** A button whose work says in the journal why it failed. */
export function doing(log, label, work, kind) {
    const button = h("button", {type: "button", class: kind, onclick: async () => {
        button.disabled = true;
        try {
            await work();
        } catch (error) {
            log.say(false, error.reason ?? error.message);
        } finally {
            button.disabled = false;
        }
    }}, label);
    return button;
}

/** The page: a log in, ``parts`` that are [title, what is in it..., its button], what happened, and the messages. */
export function layOut(root, {title, log, box, login, connect, disconnect, parts}) {
    const connecting = doing(log, "Connect", connect, "primary");
    root.append(
        h("div", {class: "head"}, h("h1", null, title), log.status),
        panel("Connection", h("form", {class: "page", onsubmit: event => {
            event.preventDefault();
            connecting.click();
        }}, login.element, h("p", {class: "quiet"}, "The password is sent to the broker only, and not stored."),
        h("div", {class: "buttons"}, doing(log, "Disconnect", disconnect), connecting, h("input", {type: "submit", hidden: true})))),
        h("div", {class: "grid"}, parts.map(([heading, ...inside]) =>
            panel(heading, inside.slice(0, -1), h("div", {class: "buttons"}, inside.at(-1))))),
        panel("Log", log.element), box.element);
}

export const shownName = text => text === "" ? "(default)" : name(text);
