// The broker's API: the one way of asking it.
//
//     await get(at("queues", vhost, name), {signal, query: {page: 1}})
//     await send("PUT", at("queues", vhost, name), {durable: true})
//     stream("events", {message: data => {...}}, {signal})          server-sent events
//
// A path without a leading slash is below /api/. Refusals are ApiError; a broker that cannot be reached is
// Unreachable. A session that has ended is told to whoever watches: the login view comes, then the same page.

export class ApiError extends Error {
    constructor(status, reason, body) {
        super(reason);
        this.name = "ApiError";
        this.status = status;
        this.reason = reason;
        this.body = body;
    }
}

/** The broker does not answer: it is restarting, or the network is gone. */
export class Unreachable extends Error {
    constructor() {
        super("The broker does not answer.");
        this.name = "Unreachable";
    }
}

// A broker that stands still says nothing: the page asks for a sign of life when nothing was heard for a second, and so tells it within three.
const QUIET_MS = 1000, PATIENCE_MS = 1500, LOOK_MS = 250;
const SIGN_OF_LIFE = "/ui/icon.svg";
let heardAt = Date.now();

const watchers = {ended: () => {}, reached: () => {}};
let token = null;

/** What the session knows: its CSRF token, and who is told of its end and of the broker's coming and going. */
export function connect({csrf, ended, reached}) {
    if (csrf !== undefined) token = csrf;
    if (ended) watchers.ended = ended;
    if (reached) watchers.reached = reached;
}

/**
 * Names as a path: each percent-encoded. Raises Error for . and .., however encoded: browsers take them out of
 * addresses, and the request would be about something else: purging "." would delete the queue "contents".
 */
export function at(...parts) {
    return parts.map(part => {
        if (part === "." || part === "..") throw new Error(`A browser cannot send the name ${part} in an address: use gomq-py-ctl.`);
        return encodeURIComponent(part);
    }).join("/");
}

/** The address of a path and its query; values that are null, undefined or "" are left out. */
export function address(path, query) {
    const pairs = Object.entries(query ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
    const search = pairs.length ? "?" + new URLSearchParams(pairs) : "";
    return (path.startsWith("/") ? path : `/api/${path}`) + search;
}

/** The JSON that a path answers. */
export function get(path, {signal, query} = {}) {
    return ask("GET", path, undefined, {signal, query});
}

/** A request that changes something: the JSON of the answer, or null where it has none. */
export function send(method, path, body, {signal, query, headers} = {}) {
    return ask(method, path, body, {signal, query, headers});
}

async function ask(method, path, body, {signal, query, quiet, headers}) {
    const options = {method, signal, credentials: "same-origin", headers: {"X-Requested-With": "fetch", ...headers}};
    if (method !== "GET" && token) options.headers["X-CSRF-Token"] = token;
    if (body !== undefined && method !== "GET") {
        options.headers["Content-Type"] = "application/json";
        options.body = JSON.stringify(body);
    }
    let response, text;
    try {
        response = await fetch(address(path, query), options);
        text = await response.text();
    } catch (error) {
        if (error.name === "AbortError") throw error;
        watchers.reached(false, heardAt);
        throw new Unreachable();
    }
    heard();
    const answer = parsed(text, response);
    if (response.ok) return answer;
    const reason = answer?.reason ?? (text || response.statusText);
    const failure = new ApiError(response.status, String(reason), answer);
    if (isEnded(failure) && !quiet) watchers.ended();
    throw failure;
}

function heard() {
    heardAt = Date.now();
    watchers.reached(true);
}

/** Watch from now on, while isWanted() and the page is seen, whether the broker still answers. */
export async function watchForSilence(isWanted) {
    if (isWanted() && !document.hidden && Date.now() - heardAt >= QUIET_MS) {
        try {
            await fetch(SIGN_OF_LIFE, {method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS)});
            heard();
        } catch {
            if (Date.now() - heardAt >= QUIET_MS) watchers.reached(false, heardAt);
        }
    }
    setTimeout(() => watchForSilence(isWanted), LOOK_MS);
}

// 401 is also what the broker answers where a right is missing; then the session goes on.
function isEnded(failure) {
    return failure.status === 401 && failure.body?.error !== "not_authorised";
}

function parsed(text, response) {
    if (!text || !(response.headers.get("Content-Type") ?? "").startsWith("application/json")) return null;
    try {
        return JSON.parse(text);
    } catch {
        return null;
    }
}

/** The session of this browser, or null. Does not call for the login view. */
export async function currentSession() {
    try {
        return await ask("GET", "session", undefined, {quiet: true});
    } catch (error) {
        if (error instanceof ApiError) return null;
        throw error;
    }
}

/** Log in with a name and a password. Raises ApiError. */
export function beginSession(username, password) {
    return ask("POST", "session", {username, password}, {quiet: true});
}

/** Log in with a token in the place of a password. Raises ApiError. */
export function beginSessionWithToken(bearer) {
    return ask("POST", "session", undefined, {quiet: true, headers: {Authorization: `Bearer ${bearer}`}});
}

/** Log out. */
export function endSession() {
    return ask("DELETE", "session", undefined, {quiet: true});
}

/**
 * Server-sent events. handlers: {open(), message(data, event), error(), events: ["name"...]}; data is the
 * parsed JSON, or the text where it is none. Comes back by itself until the signal is aborted.
 */
export function stream(path, handlers, {signal, query} = {}) {
    let source = null, timer = null, wait = 1000;

    const take = event => {
        let data = event.data;
        try {
            data = JSON.parse(event.data);
        } catch { /* text */ }
        handlers.message?.(data, event);
    };

    const open = () => {
        if (signal?.aborted) return;
        source = new EventSource(address(path, query));
        source.onopen = () => {
            wait = 1000;
            handlers.open?.();
        };
        source.onmessage = take;
        for (const kind of handlers.events ?? []) source.addEventListener(kind, take);
        source.onerror = async () => {
            handlers.error?.();
            if (source.readyState !== EventSource.CLOSED) return;
            source.close();
            timer = setTimeout(open, wait);
            wait = Math.min(2 * wait, 30000);
            // Refused: because the session has ended? Then this says so.
            await get("session", {signal}).catch(() => {});
        };
    };

    const close = () => {
        clearTimeout(timer);
        source?.close();
    };
    signal?.addEventListener("abort", close);
    open();
    return close;
}
