// MQTT: what is retained, topic by topic; looked at and deleted.

import {at, get, send} from "../core/api.js";
import {ask} from "../core/dialog.js";
import {badge, facts, h, name, replace, visible} from "../core/dom.js";
import {count, octets, time} from "../core/format.js";
import {addStyle} from "../core/style.js";

const PAGE = 100;
const SHOWN_OCTETS = 65536;

export const title = () => "MQTT retained messages";

export async function show(root, params, context) {
    await addStyle("operations");
    const vhosts = (await get("vhosts", {query: {columns: "name"}, signal: context.signal})).map(one => one.name);
    const chosen = vhosts.includes(context.query.vhost) ? context.query.vhost : context.vhost || vhosts[0];
    const choice = h("select", {"aria-label": "Virtual host of the topics", value: chosen, onchange: () => load("")},
        vhosts.map(one => h("option", {value: one}, visible(one))));
    const from = h("input", {
        type: "search", class: "filter", placeholder: "From topic on", "aria-label": "From topic on", value: context.query.after ?? "",
        spellcheck: "false", autocomplete: "off",
    });
    const body = h("tbody");
    const told = h("span", {class: "quiet", role: "status"});
    const more = h("button", {type: "button", hidden: true}, "More");
    const nothing = h("p", {class: "nothing", hidden: true}, "There are no retained messages.");

    async function load(after, keeps = false) {
        const vhost = choice.value;
        context.setQuery({vhost: vhost === vhosts[0] ? null : vhost, after: keeps ? context.query.after : after});
        const page = await get(at("mqtt", "retained", vhost), {signal: context.signal, query: {after, limit: PAGE}});
        if (!keeps) replace(body);
        body.append(...page.topics.map(one => row(one)));
        more.hidden = page.next === null;
        next = page.next;
        nothing.hidden = body.childElementCount > 0;
        replace(told, count(body.childElementCount, "topic"), page.next === null ? "" : " so far");
    }

    let next = null;
    more.addEventListener("click", () => load(next, true).catch(error => context.fail(error)));
    const row = one => {
        const path = at("mqtt", "retained", one.vhost, one.topic);
        const tr = h("tr", null, h("th", {scope: "row"}, name(one.topic)), h("td", {class: "numeric"}, octets(one.payload_bytes)),
            h("td", null, h("div", {class: "row"},
                h("button", {type: "button", onclick: () => look(path, one.topic).catch(error => context.fail(error))}, "View"),
                h("button", {type: "button", class: "danger", onclick: async () => {
                    const answer = await ask({
                        title: "Delete the retained message", submit: "Delete", danger: true,
                        text: h("p", null, "New subscribers of ", name(one.topic), " will get no retained message."),
                        run: () => send("DELETE", path),
                    });
                    if (answer !== null) tr.remove();
                }}, "Delete\u2026"))));
        return tr;
    };
    const look = async (path, topic) => {
        const found = await get(path, {signal: context.signal, query: {truncate: SHOWN_OCTETS}});
        await ask({
            title: topic, submit: "Done",
            text: h("div", {class: "page"}, facts([
                ["Published", time(found.timestamp)], ["Size", octets(found.payload_bytes)], ["Ends", found.expires_at ? time(found.expires_at) : null],
                ["Encoding", found.payload_encoding === "base64" ? badge("base64 (not UTF-8)") : "text"],
            ]), h("pre", {class: "payload", tabindex: "0"}, found.payload.split("\n").map(visible).join("\n")),
            Object.keys(found.properties).length ? h("details", null, h("summary", null, "Properties"),
                h("pre", {class: "payload"}, visible(JSON.stringify(found.properties, null, 2)).replaceAll("\u240a", "\n"))) : null),
        });
    };
    root.append(h("h1", null, title()), h("form", {class: "row", onsubmit: event => {
        event.preventDefault();
        load(from.value).catch(error => context.fail(error));
    }}, choice, from, h("button", {type: "submit"}, "Show"), told),
    h("div", {class: "listing"}, h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Topics"}, h("table", {class: "list"},
        h("caption", {class: "unseen"}, "Topics with a retained message"),
        h("thead", null, h("tr", null, h("th", {scope: "col"}, "Topic"), h("th", {scope: "col", class: "numeric"}, "Bytes"),
            h("th", {scope: "col"}, h("span", {class: "unseen"}, "Actions")))), body)), nothing, h("div", {class: "row"}, more)));
    if (vhosts.length) await load(context.query.after ?? "");
}

