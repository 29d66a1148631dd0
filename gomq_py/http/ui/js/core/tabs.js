// Tabs of a detail page; which one is shown stands in the address as ?tab=.
//
//     await tabs(root, context, [
//         {key: "overview", label: "Overview", show: async (root, context) => {...}},
//         {key: "messages", label: "Messages", load: () => import("./queue_messages.js"), given: {vhost, name}},
//     ]);
//
// A module of a tab exports async show(root, context, given). Each tab has a context of its own, which ends
// when another is shown; what the page itself does every few seconds goes on.

import {h, replace} from "./dom.js";

export async function tabs(root, context, all) {
    const body = h("div", {class: "page tab"});
    const bar = h("nav", {class: "tabs", "aria-label": "Tabs"});
    root.append(bar, body);
    let end = null;

    const show = async (chosen, isFirst) => {
        end?.abort();
        end = new AbortController();
        context.signal.addEventListener("abort", () => end.abort());
        const inner = context.part(end.signal, body);
        if (!isFirst) {
            // What the tab before kept in the address is none of this one's.
            context.setQuery(Object.fromEntries(Object.keys(context.query).map(key => [key, null])));
            context.setQuery({tab: chosen === all[0] ? null : chosen.key}, {push: false});
        }
        replace(bar, all.map(one => h("a", {
            href: "#", "aria-current": one === chosen ? "page" : null, "data-tab": one.key, onclick: event => {
                event.preventDefault();
                show(one, false).then(() => bar.querySelector("[aria-current]")?.focus());
            },
        }, one.label, one.count ? [" ", h("small", null, one.count)] : null)));
        replace(body);
        try {
            if (chosen.load) await (await chosen.load()).show(body, inner, chosen.given);
            else await chosen.show(body, inner);
        } catch (error) {
            if (!inner.signal.aborted) inner.fail(error);
        }
    };
    await show(all.find(one => one.key === context.query.tab) ?? all[0], true);
}
