// Users: the list.

import {at, get, send} from "../core/api.js";
import {badge, h, name, nameLink} from "../core/dom.js";
import {ask} from "../core/dialog.js";
import {link} from "../core/router.js";
import {table} from "../core/table.js";
import {NAME_FIELD, argumentsList, confirmed, each} from "./parts.js";

export const TAGS = [
    ["", "no tag: no access to this page"], ["management", "management: this page, as far as the permissions reach"],
    ["policymaker", "policymaker: also policies and parameters"], ["monitoring", "monitoring: sees everything"],
    ["administrator", "administrator: everything"],
];

export const title = () => "Users";

export async function show(root, params, context) {
    const list = table({
        id: "users", caption: "Users", context, order: "name", empty: "There are no users.", href: row => link("users", row.name), text: row => row.name,
        load: query => get("users", {signal: context.signal, query}),
        columns: [
            {key: "name", label: "Name", sort: "name", cell: row => nameLink(link("users", row.name), row.name)},
            {key: "tags", label: "Tags", cell: row => row.tags.map(tag => [badge(tag, tag === "administrator" ? "warn" : "quiet"), " "])},
            {key: "vhosts", label: "Virtual hosts", cell: row => {
                const mine = allowed.get(row.name) ?? [];
                return mine.length ? mine.map((vhost, index) => [index ? ", " : "", name(vhost)]) : badge("no access", "warn");
            }},
            {key: "password", label: "Password", cell: row => row.password_hash ? row.hashing_algorithm.replace("rabbit_password_hashing_", "") : badge("none", "quiet")},
            {key: "limits", label: "Limits", cell: row => argumentsList(row.limits, "")},
        ],
        buttons: [h("button", {type: "button", class: "primary", onclick: async () => {
            if (await add()) await list.refresh();
        }}, "Add\u2026")],
        actions: [{label: "Delete\u2026", kind: "danger", needs: row => row.name !== context.session.name, run: rows => confirmed("Delete users",
            ["They can no longer log in, and their connections are closed:", h("ul", {class: "some"}, rows.map(row => h("li", null, name(row.name))))],
            () => each(rows, row => send("DELETE", at("users", row.name)), "Deleted"), {typed: "delete"})}],
    });
    const allowed = new Map();
    const loadRows = list.options.load;
    list.options.load = async query => {
        const [answer, permissions] = await Promise.all([loadRows(query), get("permissions", {signal: context.signal})]);
        allowed.clear();
        for (const one of permissions) allowed.set(one.user, [...allowed.get(one.user) ?? [], one.vhost]);
        return answer;
    };
    root.append(h("h1", null, title()), list.element);
    await list.start();
}

function add() {
    return ask({
        title: "Add a user", submit: "Add", fields: [
            NAME_FIELD, {name: "password", label: "Password", type: "password", autocomplete: "new-password", hint: "Empty: login only with a certificate or token."},
            {name: "tags", label: "Tag", type: "select", options: TAGS, value: "management"},
            {name: "everything", label: "All permissions in the virtual host /", type: "check"},
        ],
        run: async ({name: user, password, tags, everything}) => {
            await send("PUT", at("users", user), password ? {password, tags} : {password_hash: "", tags});
            if (everything) await send("PUT", at("permissions", "/", user), {configure: ".*", write: ".*", read: ".*"});
        },
    });
}
