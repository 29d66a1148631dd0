// Policies: the list; operator_policies.js has the other kind.

import {at, get, send} from "../core/api.js";
import {h, name} from "../core/dom.js";
import {ask} from "../core/dialog.js";
import {table} from "../core/table.js";
import {count, number} from "../core/format.js";
import {hintsOf} from "./hints.js";
import {NAME_FIELD, argumentsList, confirmed, each, plainTable, vhostField} from "./parts.js";

const APPLIES = ["all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges"];

export const title = () => "Policies";

export function show(root, params, context) {
    return showFamily(root, context, {id: "policies", heading: title(), path: "policies", tag: "policymaker",
        what: "A policy sets arguments of all queues and exchanges whose names match, including later ones."});
}

/** The page of one kind of policies. */
export async function showFamily(root, context, {id, heading, path, tag, what}) {
    const mayChange = context.session.can(tag);
    const list = table({
        id, caption: heading, context, order: "name", empty: "There are no policies.", key: row => `${row.vhost}\n${row.name}`, text: row => `${row.name}\n${row.pattern}`,
        load: query => get(context.vhost ? at(path, context.vhost) : path, {signal: context.signal, query}),
        columns: [
            {key: "name", label: "Name", sort: "name", cell: row => mayChange ? h("button", {type: "button", class: "link", onclick: async () => {
                if (await edit(row)) await list.refresh();
            }}, name(row.name)) : name(row.name)},
            {key: "vhost", label: "Virtual host", sort: "vhost", cell: row => name(row.vhost)},
            {key: "pattern", label: "Pattern", sort: "pattern", cell: row => h("code", null, name(row.pattern))},
            {key: "apply", label: "Applies to", sort: "apply-to", cell: row => row["apply-to"]},
            {key: "priority", label: "Priority", sort: "priority", numeric: true, cell: row => row.priority},
            {key: "definition", label: "Definition", cell: row => argumentsList(row.definition)},
        ],
        buttons: mayChange ? [h("button", {type: "button", class: "primary", onclick: async () => {
            if (await edit(null)) await list.refresh();
        }}, "Add\u2026")] : [],
        actions: mayChange ? [{label: "Delete\u2026", kind: "danger", run: rows => confirmed("Delete policies", ["These policies are deleted; policies of lower priority may then apply:",
            h("ul", {class: "some"}, rows.map(row => h("li", null, name(row.name))))], () => each(rows, row => send("DELETE", at(path, row.vhost, row.name)), "Deleted"))}] : null,
    });

    async function edit(row) {
        const isOperator = path === "operator-policies";
        const [vhost, hints] = await Promise.all([row ? null : vhostField(context), hintsOf("policy", one => one.operator || !isOperator)]);
        return ask({
            title: row ? `Change ${row.name}` : "Add a policy", submit: "Save", fields: [
                ...row ? [] : [vhost, NAME_FIELD], {name: "pattern", label: "Pattern (regular expression)", value: row?.pattern ?? "", required: true},
                {name: "apply-to", label: "Applies to", type: "select", options: APPLIES, value: row?.["apply-to"] ?? "queues"},
                {name: "priority", label: "Priority", type: "number", value: row?.priority ?? 0},
                {name: "definition", label: "Definition", type: "arguments", rows: 5, value: row?.definition ?? {}, hint: "One key on each line: max-length = 10000",
                    hints: hints.map(one => ({...one, kinds: []}))},
            ],
            preview: {label: "Preview", run: async ({vhost: chosen, name: given, ...rest}) => changes(
                await send("POST", `${at(path, row?.vhost ?? chosen, row?.name ?? (given || "new"))}/preview`, rest))},
            run: ({vhost: chosen, name: given, ...rest}) => send("PUT", at(path, row?.vhost ?? chosen, row?.name ?? given), rest),
        });
    }
    root.append(h("h1", null, heading), h("p", {class: "quiet"}, what), list.element);
    await list.start();
}

// What the policy would match and change, as the broker tells it.
function changes({matched, changed, changes: some}) {
    const shown = value => value === null || value === undefined ? h("span", {class: "quiet"}, "\u2013") : h("code", null, name(JSON.stringify(value)));
    return h("div", {class: "page"},
        h("p", null, `It matches ${count(matched.queues, "queue")} and ${count(matched.exchanges, "exchange")}; ${number(changed)} would change.`),
        some.length ? plainTable("What would change", ["Name", "Setting", "Before", "After"], some.flatMap(one => one.settings.length
            ? one.settings.map((setting, index) => [index ? "" : name(one.name), name(setting.key), shown(setting.before), shown(setting.after)])
            : [[name(one.name), h("span", {class: "quiet"}, "no setting, only the policy's name"), one.policy_before ?? "", one.policy_after ?? ""]])) : null,
        some.length < changed ? h("p", {class: "quiet"}, `The first ${number(some.length)} are shown.`) : null);
}
