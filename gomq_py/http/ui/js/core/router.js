// Addresses: #/queues/VHOST/NAME?tab=messages, each part percent-encoded. The table of pages says what they
// show; back and forward are the browser's.
//
// A page's module has title(params) and async show(root, params, context). The context ends with the page:
//
//     query          what stands behind the ?, as an object
//     setQuery(patch, {push})   changes it without showing the page anew; null and "" take a key away
//     every(ms, fn)  now and again ms after each end, while the page can be seen; await it for the first time
//     signal         aborted when the page goes
//     vhost          the virtual host that is chosen, or "" for all
//     session        who asks
//     fail(error)    shows why something could not be done
//     part(signal, root)   a context for a part of the page (a tab) that ends with this signal, too

import {ApiError, Unreachable} from "./api.js";
import {h, replace} from "./dom.js";
import {session} from "./session.js";

const KEPT_VHOST = "gomq.vhost";
const KEPT_REFRESH = "gomq.refresh";
/** The list that keys are for: the last one that was shown. */
export const lists = {shown: null};

let table = [];
let main = null;
let current = null;
let changed = () => {};

/** The address of a page: href("/queues/%2F/a", {tab: "bindings"}). */
export function href(path, query) {
    const pairs = Object.entries(query ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
    return "#" + path + (pairs.length ? "?" + new URLSearchParams(pairs) : "");
}

/** The same of parts that are encoded here: link("queues", vhost, name). */
export function link(...parts) {
    return href("/" + parts.map(part => encodeURIComponent(part)).join("/"));
}

/** Go there. */
export function go(address, {replaced} = {}) {
    if (replaced) {
        history.replaceState(null, "", address);
        show();
    } else if (location.hash === address) {
        show();
    } else {
        location.hash = address;
    }
}

/** {path, query} of an address. */
export function parsed(hash) {
    const text = hash.replace(/^#/, "") || "/";
    const cut = text.indexOf("?");
    const path = cut < 0 ? text : text.slice(0, cut);
    return {path, query: Object.fromEntries(new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1)))};
}

/** The page of a path and its params, or null. */
export function find(path, pages = table) {
    const parts = path.split("/").slice(1);
    for (const page of pages) {
        const wanted = page.path.split("/").slice(1);
        if (wanted.length !== parts.length) continue;
        const params = {};
        const fits = wanted.every((part, index) => {
            if (!part.startsWith(":")) return part === parts[index];
            try {
                params[part.slice(1)] = decodeURIComponent(parts[index]);
            } catch {
                return false;
            }
            return true;
        });
        if (fits) return {page, params};
    }
    return null;
}

/** The virtual host that lists are about, or "" for all. */
export function chosenVhost() {
    return localStorage.getItem(KEPT_VHOST) ?? "";
}

/** Choose another; the page is shown anew. */
export function chooseVhost(vhost) {
    localStorage.setItem(KEPT_VHOST, vhost);
    const {path, query} = parsed(location.hash);
    delete query.page;
    go(href(path, query), {replaced: true});
}

/** Seconds between two loads, as the user wants it; "": as each page has it, "0": never. */
export function keptRefresh() {
    return localStorage.getItem(KEPT_REFRESH) ?? "";
}

export function chooseRefresh(seconds) {
    localStorage.setItem(KEPT_REFRESH, seconds);
}

/** Begin: pages is the table, root where they are shown, onChange({page, params}) is told of each. */
export function start(pages, root, onChange) {
    table = pages;
    main = root;
    changed = onChange;
    window.addEventListener("hashchange", show);
    show();
}

/** Show nothing until the next start. */
export function stop() {
    window.removeEventListener("hashchange", show);
    current?.end.abort();
    current = null;
}

/** Show the page of the address anew. */
export async function show() {
    current?.end.abort();
    const {path, query} = parsed(location.hash);
    const found = find(path);
    const mine = current = {end: new AbortController(), query};
    const isOpen = () => current === mine && !mine.end.signal.aborted;
    if (!found || !session.can(found.page.tag)) {
        document.title = "Not found - gomq-py";
        replace(main, h("h1", null, found ? "No access" : "No such page"), h("p", null, found
            ? `This page needs the tag ${found.page.tag}.` : "There is nothing at this address. ",
            h("a", {href: "#/"}, "Overview")));
        changed({page: null, params: {}});
        return;
    }
    changed(found);
    const root = h("div", {class: "page", "data-page": found.page.path});
    const context = contextOf(mine, root, isOpen);
    try {
        const module = await found.page.load();
        if (!isOpen()) return;
        document.title = `${module.title(found.params)} - gomq-py`;
        replace(main, root);
        await module.show(root, found.params, context);
    } catch (error) {
        if (isOpen()) context.fail(error);
    } finally {
        if (isOpen()) root.setAttribute("data-shown", "");
    }
}

function contextOf(mine, root, isOpen) {
    return {
        session, vhost: chosenVhost(), query: mine.query,
        setQuery(patch, {push = false} = {}) {
            if (!isOpen()) return;
            for (const [key, value] of Object.entries(patch)) {
                if (value === null || value === undefined || value === "") delete mine.query[key];
                else mine.query[key] = String(value);
            }
            const address = href(parsed(location.hash).path, mine.query);
            if (push) history.pushState(null, "", address);
            else history.replaceState(null, "", address);
        },
        ...endingWith(mine.end.signal, root),
    };
}

// What of a context belongs to a part of the page.
function endingWith(signal, root) {
    const fail = error => {
        if (!signal.aborted) tellFailure(root, error);
    };
    return {
        signal, fail,
        every: (ms, work) => repeat(ms, async () => {
            await work();
            root.querySelector(":scope > .failure.repeated")?.remove();
        }, signal, error => {
            fail(error);
            root.querySelector(":scope > .failure")?.classList.add("repeated");
        }),
        part(end, inner) {
            return {...this, ...endingWith(end, inner)};
        },
    };
}

function tellFailure(root, error) {
    if (error.name === "AbortError" || error instanceof Unreachable && root.childElementCount) return;
    if (error instanceof ApiError && error.status === 401 && error.body?.error !== "not_authorised") return;
    if (!(error instanceof ApiError || error instanceof Unreachable)) console.error(error);
    const text = error instanceof ApiError && error.status === 404
        ? `Not found, or deleted meanwhile: ${error.reason}` : error.reason ?? error.message;
    if (!root.isConnected) replace(main, root);
    root.querySelector(":scope > .failure")?.remove();
    root.prepend(h("div", {class: "failure", role: "alert"}, h("p", null, text),
        h("button", {type: "button", onclick: () => show()}, "Try again")));
}

/** Run work now, and again ms after each end, while the page can be seen, until the signal is aborted. */
export async function repeat(ms, work, signal, failed) {
    let timer = null, runs = false;
    const wanted = keptRefresh();
    const wait = wanted === "" ? ms : Number(wanted) * 1000;

    const once = async () => {
        if (runs || signal.aborted) return;
        clearTimeout(timer);
        runs = true;
        try {
            await work();
        } catch (error) {
            if (!signal.aborted) failed(error);
        } finally {
            runs = false;
        }
        if (!signal.aborted && wait > 0) timer = setTimeout(next, wait);
    };
    const next = () => document.hidden ? undefined : once();
    const seen = () => document.hidden || once();

    document.addEventListener("visibilitychange", seen);
    signal.addEventListener("abort", () => {
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", seen);
    });
    await once();
}
