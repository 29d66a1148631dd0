// One user: tags, password, permissions, limits.

import {at, get, send} from "../core/api.js";
import {badge, h, name, replace} from "../core/dom.js";
import {ask, tell} from "../core/dialog.js";
import {go} from "../core/router.js";
import {confirmed, limitsPanel, permissionsPanel} from "./parts.js";
import {TAGS} from "./users.js";

export const title = params => params.name;

export async function show(root, params, context) {
    const path = at("users", params.name);
    const mark = h("span", {class: "row"});
    const permissions = h("div", {class: "page"});
    root.append(h("div", {class: "head"}, h("h1", null, name(params.name)), mark, h("span", {class: "grow"}),
        h("button", {type: "button", onclick: () => change().catch(context.fail)}, "Password and tags\u2026"),
        h("button", {type: "button", class: "danger", onclick: async () => {
            const text = "The user can no longer log in; connections are closed.";
            if (await confirmed(`Delete ${params.name}`, text, () => send("DELETE", path), {typed: params.name})) go("#/users");
        }}, "Delete\u2026")), permissions);
    let user = null;

    async function load() {
        const {signal} = context;
        const [one, rights, topics] = await Promise.all([get(path, {signal}), get(`${path}/permissions`, {signal}), get(`${path}/topic-permissions`, {signal})]);
        user = one;
        replace(mark, one.tags.length ? one.tags.map(tag => badge(tag, tag === "administrator" ? "warn" : "quiet")) : badge("no tags", "quiet"),
            one.password_hash ? null : badge("no password", "quiet"));
        replace(permissions, await permissionsPanel({user: params.name, rows: rights, topics, context, changed: load}),
            limitsPanel({title: "Limits", limits: one.limits, kinds: ["max-connections", "max-channels"], path: at("user-limits", params.name), changed: load}));
    }

    async function change() {
        const known = TAGS.map(([tag]) => tag);
        const changed = await ask({
            title: "Password and tags", submit: "Change", text: "Sessions and tokens of this user end.", fields: [
                {name: "password", label: "New password", type: "password", autocomplete: "new-password", hint: "Empty: unchanged."},
                {name: "remove", label: "Remove the password", type: "check"},
                {name: "tags", label: "Tags, with commas between them", value: user.tags.join(","), hint: `known: ${known.filter(Boolean).join(", ")}`},
            ],
            run: ({password, remove, tags}) => {
                const secret = remove ? {password_hash: ""} : password ? {password}
                    : {password_hash: user.password_hash, hashing_algorithm: user.hashing_algorithm};
                return send("PUT", path, {...secret, tags});
            },
        });
        if (changed) await tell(load, "Changed");
    }
    await load();
}

