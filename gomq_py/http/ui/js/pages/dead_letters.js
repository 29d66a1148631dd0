// Dead letters: queues that get them, what is in them by why and where it died, and the way back.

import {at, send} from "../core/api.js";
import {ask, toast} from "../core/dialog.js";
import {badge, h, name, nameLink, replace} from "../core/dom.js";
import {ago, count, number} from "../core/format.js";
import {link} from "../core/router.js";
import {choosing, difference, groups} from "../messages/deaths.js";
import {deadQueues, MOST_QUEUES} from "../messages/dead_queues.js";
import {MOST, peek, whole} from "../messages/peek.js";
import {addStyle} from "../messages/style.js";
import {transfer} from "../messages/transfer.js";
import {messageView, valueText} from "../messages/view.js";
import {outcomeOf} from "./move.js";

// Queues that are looked into at once; the others when somebody asks.
const LOOKED_INTO = 10;
const PREVIEW_OCTETS = 1024;
const EXAMPLES = 20;

export const title = ({name: queue}) => queue === undefined ? "Dead letters" : `Dead letters in ${queue}`;

export async function show(root, {vhost, name: queue}, context) {
    await addStyle();
    if (queue !== undefined) {
        root.append(h("h1", null, "Dead letters"));
        const one = section({vhost, name: queue, from: []}, context);
        root.append(one.element);
        await one.look();
        return;
    }
    const told = h("p", {class: "quiet", role: "status"}, "Looking for where dead letters go\u2026");
    root.append(h("h1", null, "Dead letters"), told);
    const {queues, complete} = await deadQueues(context.vhost, context.signal);
    replace(told, queues.length ? `${count(queues.length, "queue gets", "queues get")} dead letters.`
        : "No queue gets dead letters: no queue has a dead letter exchange with a bound queue.",
    complete ? "" : ` Only the first ${number(MOST_QUEUES)} queues and their exchanges were examined.`);
    const sections = queues.map(one => section(one, context));
    root.append(...sections.map(one => one.element));
    for (const [index, one] of sections.entries()) if (index < LOOKED_INTO && queues[index].ready) await one.look();
}

function section(queue, context) {
    const content = h("div", {class: "page"});
    const look = async () => {
        try {
            await draw(content, queue, context, look);
        } catch (error) {
            if (error.name !== "AbortError") replace(content, h("p", {class: "fault", role: "alert"}, error.reason ?? error.message));
        }
    };
    const element = h("section", {class: "panel", "data-dead": queue.name},
        h("div", {class: "head"}, h("h2", null, nameLink(link("queues", queue.vhost, queue.name), queue.name)),
            queue.ready === undefined ? null : badge(`${number(queue.ready)} ready`, queue.ready ? "warn" : "good"),
            h("span", {class: "quiet"}, "in ", name(queue.vhost)),
            queue.from.length ? h("span", {class: "quiet"}, "from ", queue.from.slice(0, 5).map((one, index) => [index ? ", " : "", name(one)]),
                queue.from.length > 5 ? ` and ${queue.from.length - 5} more` : "") : null,
            h("span", {class: "grow"}), h("button", {type: "button", onclick: look}, "Examine"),
            h("a", {class: "button", href: link("queues", queue.vhost, queue.name, "messages")}, "Messages")),
        content);
    return {element, look};
}

async function draw(content, {vhost, name: queue}, context, again) {
    const messages = await peek(vhost, queue, {count: MOST, truncate: PREVIEW_OCTETS, signal: context.signal});
    const found = groups(messages);
    const examples = h("div", {class: "messages"});
    examples.hidden = true;
    const showExamples = group => {
        examples.hidden = false;
        replace(examples, group.messages.slice(0, EXAMPLES).map((message, index) => messageView(message, {
            open: index === 0, whole: one => whole(vhost, queue, one, context.signal)})));
        examples.scrollIntoView({block: "nearest"});
    };
    const cells = group => [
        h("th", {scope: "row"}, group.reason === null ? badge("not a dead letter") : badge(group.reason, "bad")),
        h("td", null, group.queue === null ? "" : nameLink(link("queues", vhost, group.queue), group.queue)),
        h("td", null, group.exchange === null ? "" : group.exchange === "" ? "(default)" : name(group.exchange)),
        h("td", {class: "numeric"}, number(group.messages.length)),
        h("td", {class: "numeric"}, group.most ? number(group.most) : ""),
        h("td", null, Number.isFinite(group.oldest) ? ago(group.oldest) : ""),
        h("td", null, h("div", {class: "row"},
            h("button", {type: "button", onclick: () => showExamples(group)}, "Show"),
            group.queue === null ? null : h("button", {type: "button", onclick: async () => {
                if (await replay(vhost, queue, group, context)) await again();
            }}, "Replay\u2026"))),
    ];
    replace(content,
        messages.length === 0 ? h("p", {class: "quiet"}, "The queue has no ready messages.") : [
            messages.length === MOST ? h("p", {class: "quiet"}, `Of the ${number(MOST)} oldest messages:`) : null,
            h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": `Dead letters in ${queue}`}, h("table", {class: "list"},
                h("thead", null, h("tr", null, ["Reason", "Died in", "Published to", "Messages", "Deaths or attempts", "Oldest"].map(
                    (label, index) => h("th", {scope: "col", class: index === 3 || index === 4 ? "numeric" : null}, label)),
                h("th", {scope: "col"}, h("span", {class: "unseen"}, "Actions")))),
                h("tbody", null, found.map(group => h("tr", null, cells(group)))))),
            examples,
        ]);
}

/** Asks how, shows what would change, and brings the group back. Whether it was done. */
async function replay(vhost, queue, group, context) {
    const path = `${at("queues", vhost, queue)}/replay`;
    const marks = choosing(group);
    const isMarked = group.messages.every(({properties}) => Object.entries(marks).every(([key, value]) => properties.headers[key] === value));
    const headers = isMarked ? marks : undefined;
    const text = h("div", {class: "page"});
    let how = {to: "queue", x_death: "keep"}, asked = null, going = 0;
    const told = h("p", {role: "status"}, "Counting\u2026");
    const bar = h("progress", {max: "1", value: 0, hidden: true, "aria-label": "Progress"});
    const table = h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "What would change"});
    const tell = async () => {
        const mine = asked = Symbol();
        replace(table, changes(group.messages[0], queue, how));
        const found = await send("POST", path, {...how, headers, dry_run: true}, {signal: context.signal}).catch(error => ({error}));
        if (mine !== asked) return;
        going = found.moved ?? 0;
        if (found.error) replace(told, found.error.reason ?? found.error.message);
        else replace(told, outcomeOf(found, found.moved, "replay"));
    };
    replace(text, isMarked ? null : h("p", null, "These messages do not record their first death, so all dead letters of the queue are replayed."),
        told, h("h3", null, "What would change, of the first one"), table, bar);
    tell();
    const change = key => event => {
        how = {...how, [key]: event.target.value};
        tell();
    };
    const answer = await ask({
        title: "Replay", submit: "Replay", text,
        fields: group.isTask ? [] : [
            {name: "to", label: "Back to", type: "select", options: [["queue", "the queue in which each message died first"],
                ["exchange", "the exchange to which it was published"]], onchange: change("to")},
            {name: "x_death", label: "Headers about deaths", type: "select", options: [["keep", "stay"], ["clean", "are removed"]],
                onchange: change("x_death")},
        ],
        run: async given => {
            bar.hidden = false;
            bar.max = Math.max(going, 1);
            const result = await transfer({
                path, request: {...how, ...given, headers}, total: going, signal: context.signal, isStopped: () => !text.isConnected,
                progress: done => {
                    bar.value = done;
                },
            });
            const stayed = Object.values(result.stayed).reduce((sum, one) => sum + one, 0);
            toast(`${count(result.done, "message")} went back${stayed ? `, ${number(stayed)} stayed` : ""}`, stayed ? undefined : "good");
        },
    });
    return answer !== null;
}

function changes(message, queue, how) {
    const shown = value => value === "" ? "(default)" : name(valueText(value));
    const cell = (before, after) => JSON.stringify(before) === JSON.stringify(after) ? h("td", null, shown(before))
        : h("td", null, h("del", null, shown(before)), after === null ? null : [" ", h("ins", null, shown(after))]);
    return h("table", {class: "change"}, h("tbody", null, difference(message, queue, how).map(([what, before, after]) => h("tr", null,
        h("th", {scope: "row"}, what), cell(before, after)))));
}
