// The cluster: its nodes, who leads, who has all that is confirmed, and how far the copies are behind.

import {at, get, send} from "../core/api.js";
import {badge, facts, h, name, panel, replace} from "../core/dom.js";
import {number, octets} from "../core/format.js";
import {table} from "../core/table.js";
import {confirmed, figures} from "./parts.js";

const STATES = {leading: "good", streaming: "good", syncing: "warn", fenced: "bad", disconnected: "bad"};

export const title = () => "Cluster";

export async function show(root, params, context) {
    const facing = h("div", {class: "page"});
    const list = table({
        id: "cluster", caption: "Nodes of the cluster", context, order: "name", key: row => row.node,
        empty: "This broker has no followers: its data is on this machine only.", text: row => [row.name, row.node, row.address].join("\n"),
        load: async () => {
            const answer = await get("cluster", {signal: context.signal});
            draw(facing, answer);
            return rows(answer);
        },
        columns: [
            {key: "name", label: "Node", sort: "name", cell: row => name(row.name || row.node)},
            {key: "role", label: "Role", sort: "role", cell: row => badge(row.role, row.role === "leader" ? "good" : "quiet")},
            {key: "in_sync", label: "In sync", sort: "in_sync", cell: row => row.in_sync === null ? ""
                : row.in_sync ? badge("in sync", "good", "has all that is confirmed, and may lead") : badge("not in sync", "bad", "may lack confirmed messages, and cannot lead")},
            {key: "state", label: "State", sort: "state", cell: row => row.state ? badge(row.state, STATES[row.state] ?? "quiet") : ""},
            {key: "lag", label: "Behind", numeric: true, value: row => row.lag_bytes ?? -1, cell: row => row.lag_bytes === null ? "" : octets(row.lag_bytes)},
            {key: "lag_seconds", label: "Seconds behind", numeric: true, value: row => row.lag_seconds ?? -1,
                cell: row => row.lag_seconds === null ? "" : row.lag_seconds.toFixed(1)},
            {key: "sync", label: "Sync", cell: row => row.sync ?? ""},
            {key: "epoch", label: "Epoch", numeric: true, sort: "epoch", cell: row => row.epoch === null ? "" : number(row.epoch)},
            {key: "address", label: "Address", sort: "address", cell: row => name(row.address)},
            {key: "version", label: "Version", sort: "version", cell: row => name(row.version)},
            {key: "node", label: "Id", sort: "node", hidden: true, cell: row => name(row.node)},
        ],
        actions: context.session.can("administrator") ? [{label: "Forget\u2026", kind: "danger", needs: row => row.state === "disconnected",
            run: chosen => confirmed("Forget a node", `${chosen.length === 1 ? "A node" : "Nodes"} that will not come back: removed from the in-sync set and from this list.`,
                async () => {
                    for (const row of chosen) await send("DELETE", at("cluster", "nodes", row.node));
                }, {submit: "Forget"})}] : undefined,
    });
    root.append(h("h1", null, title()), facing, list.element);
    await list.start();
}

// The nodes that etcd knows; without elections, the followers that are connected, and this node.
function rows(answer) {
    const links = new Map((answer.followers ?? []).map(one => [one.node, one]));
    if (answer.elects) return (answer.nodes ?? []).map(one => ({...one, sync: progress(links.get(one.node))}));
    if (!answer.replicates) return [];
    const own = {node: "", name: answer.node, role: answer.role, in_sync: null, state: "leading", lag_bytes: 0, lag_seconds: 0,
        epoch: answer.epoch ?? null, address: "", version: ""};
    return [own, ...[...links.values()].map(one => ({...one, role: "follower", in_sync: null, epoch: null, version: "", sync: progress(one)}))];
}

function progress(link) {
    if (!link || link.state !== "syncing") return "";
    return `${octets(link.sync_done_bytes)} of ${octets(link.sync_total_bytes)}`;
}

function draw(place, answer) {
    const members = answer.in_sync ?? [], least = answer.min_isr ?? 1;
    const differing = answer.settings_differ ?? [];
    replace(place,
        answer.elects ? figures([["in sync", `${number(members.length)} of ${number((answer.nodes ?? []).length)}`], ["needed for a confirm", number(least)],
            ["epoch", number(answer.epoch)], ["waiting confirms", number(answer.promises ?? 0)],
            ["lease left", `${(answer.lease_seconds_left ?? 0).toFixed(1)} s`], ["etcd call", latency(answer.etcd_calls)]]) : null,
        notes(answer, members, least).map(text => h("p", null, badge("error", "bad"), " ", name(text))),
        answer.cluster ? panel("Details", facts([["Cluster", name(answer.cluster)], ["This node", name(answer.node)],
            ["Damage", answer.damaged ? "found in this data folder; no follower syncs from it" : "none was found"]])) : null,
        differing.length ? panel("Settings that differ", h("ul", null, differing.map(one => h("li", null, name(one.name), ": ", name(one.setting), " is ",
            name(one.there || "empty"), ", here ", name(one.here || "empty"))))) : null);
}

function notes(answer, members, least) {
    const found = [];
    if (answer.fenced) found.push("This leader is fenced: nothing is confirmed or delivered until etcd answers.");
    if (answer.elects && members.length < least) found.push("Fewer nodes are in sync than min_isr asks for: nothing is confirmed, and publishers are held.");
    if (answer.etcd_error) found.push(`etcd: ${answer.etcd_error}`);
    return found;
}

function latency(calls) {
    const count = calls?.buckets.at(-1)?.[1] ?? 0;
    return count ? `${(calls.seconds / count * 1000).toFixed(1)} ms` : "\u2013";
}
