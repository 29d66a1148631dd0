// Ctrl-K or /: go to a page or an object by its name. ?: the keys.

import {at, get} from "./api.js";
import {h, name, replace} from "./dom.js";
import {link} from "./router.js";
import {session} from "./session.js";

const WAIT_MS = 150;
const MOST = 8;
const OBJECTS = [
    {path: "queues", label: "queue", href: one => link("queues", one.vhost, one.name)},
    {path: "exchanges", label: "exchange", href: one => link("exchanges", one.vhost, one.name)},
    {path: "connections", label: "connection", href: one => link("connections", one.name)},
    {path: "users", label: "user", tag: "administrator", href: one => link("users", one.name)},
];

/** Open it over the pages of this table. */
export function open(pages) {
    let found = [], current = 0, timer = null, end = new AbortController();
    const list = h("ul", {role: "listbox", id: "palette-list", "aria-label": "Found"});
    const input = h("input", {
        type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", autocomplete: "off",
        "aria-label": "Search pages, queues, exchanges, connections, users", placeholder: "Search", spellcheck: "false",
        oninput: () => {
            clearTimeout(timer);
            draw(ofPages(input.value));
            if (input.value.trim()) timer = setTimeout(search, WAIT_MS);
        },
        onkeydown: event => {
            if (event.key === "ArrowDown" || event.key === "ArrowUp") {
                event.preventDefault();
                choose(current + (event.key === "ArrowDown" ? 1 : -1));
            } else if (event.key === "Enter") {
                event.preventDefault();
                if (found[current]) leave(found[current]);
            }
        },
    });
    const dialog = h("dialog", {class: "palette", "aria-label": "Search", onclose: () => {
        clearTimeout(timer);
        end.abort();
        dialog.remove();
    }, onclick: event => event.target === dialog && dialog.close()}, input, list);

    const ofPages = text => pages.filter(page => page.label && session.can(page.tag)
        && page.label.toLowerCase().includes(text.trim().toLowerCase()))
        .map(page => ({label: page.label, kind: "page", href: `#${page.path}`}));

    const search = async () => {
        end.abort();
        end = new AbortController();
        const {signal} = end;
        const text = input.value.trim();
        const answers = await Promise.all(OBJECTS.filter(kind => session.can(kind.tag)).map(async kind => {
            try {
                const query = {page: 1, page_size: MOST, name: text, disable_stats: true, columns: "name,vhost"};
                const answer = await get(at(kind.path), {signal, query});
                const items = Array.isArray(answer) ? answer.filter(one => one.name.includes(text)).slice(0, MOST) : answer.items;
                return items.map(one => ({label: one.name, kind: kind.label, vhost: one.vhost, href: kind.href(one)}));
            } catch {
                return [];
            }
        }));
        if (!signal.aborted) draw([...ofPages(text), ...answers.flat()]);
    };

    const leave = one => {
        dialog.close();
        location.hash = one.href;
    };

    const choose = index => {
        if (!found.length) return;
        current = (index + found.length) % found.length;
        [...list.children].forEach((item, place) => item.setAttribute("aria-selected", String(place === current)));
        input.setAttribute("aria-activedescendant", `palette-${current}`);
        list.children[current].scrollIntoView({block: "nearest"});
    };

    const draw = entries => {
        found = entries;
        replace(list, entries.map((one, index) => h("li", {role: "option", id: `palette-${index}`, onclick: () => leave(one)},
            name(one.label || "(default)"), one.vhost ? h("small", null, name(one.vhost)) : null, h("small", {class: "kind"}, one.kind))));
        choose(0);
    };

    document.body.append(dialog);
    dialog.showModal();
    draw(ofPages(""));
    input.focus();
}

const KEYS = [
    ["Ctrl K or /", "search pages and objects"], ["?", "these keys"], ["j, k", "next and previous row of a list"],
    ["Enter", "open the row"], ["x", "choose the row"], ["r", "load the page anew"], ["Esc", "close what is open"],
];

/** Show the keys. */
export function help() {
    const dialog = h("dialog", {"aria-label": "Keys", onclose: () => dialog.remove()}, h("h2", null, "Keys"),
        h("dl", {class: "keys"}, KEYS.map(([key, meaning]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, meaning)))),
        h("div", {class: "buttons"}, h("button", {type: "button", class: "primary", onclick: () => dialog.close()}, "Close")));
    document.body.append(dialog);
    dialog.showModal();
}
