// Definitions: all that was set up, out as a file, and in from one, with what would change before it is done.

import {at, get, send} from "../core/api.js";
import {tell, toast} from "../core/dialog.js";
import {badge, h, name, panel, replace, visible} from "../core/dom.js";
import {count, number} from "../core/format.js";
import {addStyle} from "../core/style.js";

const KINDS = {new: "good", differs: "warn", ignored: "quiet", refused: "bad", same: "quiet"};
// Rows that are drawn; the numbers are of all.
const ROWS = 500;
// As much as the broker takes.
const MOST_OCTETS = 64 * 1024 * 1024;

export const title = () => "Definitions";

export async function show(root, params, context) {
    await addStyle("operations");
    const vhosts = (await get("vhosts", {query: {columns: "name"}, signal: context.signal})).map(one => one.name);
    const options = () => [h("option", {value: ""}, "the whole broker"), vhosts.map(one => h("option", {value: one}, visible(one)))];
    root.append(h("h1", null, "Definitions"), h("div", {class: "grid"}, exporting(options), importing(options, context)));
}

function exporting(options) {
    const choice = h("select", {"aria-label": "Definitions of", onchange: () => aim()}, options());
    const save = h("a", {class: "button primary", download: "definitions.json"}, "Save as a file");
    const aim = () => {
        save.href = `/api/definitions${choice.value ? "/" + at(choice.value) : ""}`;
    };
    aim();
    return panel("Export", h("p", {class: "quiet"}, "Virtual hosts, users with the hashes of their passwords, rights, policies, parameters, exchanges, queues, "
        + "bindings; no messages. RabbitMQ and LavinMQ read it, too."), h("div", {class: "row"}, choice, save));
}

function importing(options, context) {
    const choice = h("select", {"aria-label": "Import into", onchange: () => forget()}, options());
    const file = h("input", {type: "file", accept: ".json,application/json", "aria-label": "File of definitions", onchange: async () => {
        const [chosen] = file.files;
        if (!chosen) return;
        if (chosen.size > MOST_OCTETS) return toast(`The file is larger than the limit, ${number(MOST_OCTETS)} bytes.`, "bad");
        text.value = await chosen.text();
        return forget();
    }});
    const text = h("textarea", {class: "definitions", "aria-label": "Definitions as JSON", spellcheck: "false", oninput: () => forget(),
        placeholder: "A file, or JSON pasted here"});
    const result = h("div", {class: "page", role: "status"});
    const go = h("button", {type: "button", class: "primary", disabled: true}, "Import");
    const compare = h("button", {type: "button"}, "What would change?");
    let definitions = null;

    const path = () => `definitions${choice.value ? "/" + at(choice.value) : ""}`;
    const forget = () => {
        definitions = null;
        go.disabled = true;
        replace(result);
    };
    const read = () => {
        let value;
        try {
            value = JSON.parse(text.value);
        } catch (error) {
            throw new Error(`Not JSON: ${error.message}`);
        }
        if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("Definitions must be a JSON object.");
        return value;
    };
    compare.addEventListener("click", async () => {
        compare.disabled = true;
        forget();
        await tell(async () => {
            const wanted = read();
            const found = await send("POST", `${path()}/difference`, wanted, {signal: context.signal});
            definitions = wanted;
            go.disabled = false;
            replace(result, differences(found));
        });
        compare.disabled = false;
    });
    go.addEventListener("click", async () => {
        go.disabled = true;
        await tell(async () => {
            const report = await send("POST", path(), definitions, {signal: context.signal, query: {report: true}});
            replace(result, reported(report));
            toast("Imported", report?.refused?.length ? undefined : "good");
        });
    });
    return panel("Import", h("p", {class: "quiet"}, "Missing objects are created. Existing queues, exchanges and bindings stay; users, permissions, policies and parameters are replaced. Nothing is deleted."),
        h("div", {class: "row"}, file, choice), text, h("div", {class: "row"}, compare, go), result);
}

function differences({counts, differences: rows}) {
    const kinds = Object.entries(counts);
    if (!kinds.length) return h("p", null, "Nothing would change: everything exists already.");
    return [
        h("p", {class: "row"}, kinds.map(([kind, many]) => badge(`${number(many)} ${kind}`, KINDS[kind]))),
        h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "What would change"}, h("table", {class: "list"},
            h("caption", {class: "unseen"}, "What would change"),
            h("thead", null, h("tr", null, ["What", "Kind", "Name", "Virtual host", "Why"].map(label => h("th", {scope: "col"}, label)))),
            h("tbody", null, rows.slice(0, ROWS).map(row => h("tr", null, h("th", {scope: "row"}, badge(row.action, KINDS[row.action])),
                h("td", null, row.kind), h("td", null, name(row.name)), h("td", null, name(row.vhost)), h("td", {class: "note"}, name(row.note))))))),
        rows.length > ROWS ? h("p", {class: "quiet"}, `The first ${number(ROWS)} are shown.`) : null,
    ];
}

function reported(report) {
    const made = Object.entries(report?.imported ?? {}).filter(([, many]) => many);
    return [
        h("p", null, made.length ? `Imported: ${made.map(([kind, many]) => `${number(many)} ${kind}`).join(", ")}.` : "Nothing was new."),
        ["changed", "ignored", "refused"].filter(kind => report?.[kind]?.length).map(kind => h("details", {open: kind === "refused"},
            h("summary", null, count(report[kind].length, `entry ${kind}`, `entries ${kind}`)),
            h("ul", null, report[kind].slice(0, ROWS).map(line => h("li", null, name(line)))))),
    ];
}
