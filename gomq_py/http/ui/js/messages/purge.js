// Purging: messages are gone for good, so the queue's name is asked for.

import {at, send} from "../core/api.js";
import {ask} from "../core/dialog.js";
import {name} from "../core/dom.js";
import {count} from "../core/format.js";

/** Asks, and purges. Resolves to whether it was done. */
export async function purge(vhost, queue, ready) {
    const done = await ask({
        title: "Purge the queue", danger: true, submit: "Purge", typed: queue,
        text: [`Drops ${ready === undefined ? "the ready messages" : count(ready, "ready message")} of `, name(queue),
            ". They cannot be restored. Unacknowledged messages stay with their consumers."],
        fields: [{name: "most", type: "number", min: 1, step: 1, label: "Number of messages", hint: "The oldest ones; empty: all."}],
        run: ({most}) => send("DELETE", `${at("queues", vhost, queue)}/contents`, undefined, {query: {count: most}}),
    });
    return done !== null;
}
