// Who is logged in, and what the page may offer them. The broker decides; this only leaves out what it would
// refuse.

import {beginSession, beginSessionWithToken, connect, currentSession, endSession} from "./api.js";

const REACHED = {
    administrator: ["administrator", "monitoring", "policymaker", "management"],
    monitoring: ["monitoring", "management"],
    policymaker: ["policymaker", "management"],
};

// Says that this browser has logged in, so that a page need not ask in vain: the cookie itself no script sees.
const KEPT = "gomq.session";

class Session {
    name = null;
    tags = [];
    /** {vhost, configure, write, read} of each vhost that the user may enter. */
    permissions = [];
    /** The names of those that the user sees. */
    vhosts = [];
    #reached = new Set();

    /** Whether the user's tags reach this one, or one of these. */
    can(tag) {
        return !tag || [tag].flat().some(one => this.#reached.has(one));
    }

    /** The permissions in a vhost, or null. */
    permission(vhost) {
        return this.permissions.find(one => one.vhost === vhost) ?? null;
    }

    /**
     * Whether the user may "configure", "write" or "read" the object. Where unsure, true: the broker decides. A virtual host that is newer than
     * this login is such a case.
     */
    may(verb, vhost, object) {
        const found = this.permission(vhost);
        if (!found) return !this.vhosts.includes(vhost);
        if (found[verb] === "") return object === "";
        try {
            return new RegExp(found[verb]).test(object);
        } catch {
            return true;
        }
    }

    /** Whether there may be an object that the user may "configure", "write" or "read", in this virtual host or in any. */
    maySome(verb, vhost) {
        return this.permissions.some(one => (!vhost || one.vhost === vhost) && one[verb] !== "") || Boolean(vhost) && !this.vhosts.includes(vhost);
    }

    take(shape) {
        this.name = shape?.name ?? null;
        this.tags = shape?.tags ?? [];
        this.permissions = shape?.permissions ?? [];
        this.vhosts = shape?.vhosts ?? [];
        this.#reached = new Set(this.tags.flatMap(tag => REACHED[tag] ?? [tag]));
        connect({csrf: shape?.csrf_token ?? null});
        if (shape) localStorage.setItem(KEPT, "1");
        else localStorage.removeItem(KEPT);
        return Boolean(shape);
    }
}

export const session = new Session();

/** Whether this browser has logged in. */
export async function resume() {
    return localStorage.getItem(KEPT) !== null && session.take(await currentSession());
}

/** Raises ApiError where the broker refuses. */
export async function logIn(username, password) {
    return session.take(await beginSession(username, password));
}

/** Raises ApiError where the broker refuses. */
export async function logInWithToken(token) {
    return session.take(await beginSessionWithToken(token));
}

export async function logOut() {
    try {
        await endSession();
    } catch { /* it has ended already */ }
    session.take(null);
}
