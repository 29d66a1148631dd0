// Moves in parts: one request after another, so that the page can tell how far it is, and stop between two of them.

import {send} from "../core/api.js";

const PART = 500;

/**
 * Moves `total` messages at most, as many as a dry run has found. {examined, matched, done, targets, stayed}: sums.
 * A copy is one request: the originals stay, so a second one would copy the same again.
 */
export async function transfer({path, request, total, isCopy, progress, isStopped, signal}) {
    const sum = {examined: 0, matched: 0, done: 0, targets: {}, stayed: {}};
    const most = Math.min(total, request.count ?? Infinity);
    let part = isCopy ? undefined : PART;
    while (sum.done < most && !isStopped()) {
        const left = most - sum.done;
        // Those that are refused count, too: so the last part is only bounded by what somebody asked for.
        const count = part !== undefined ? Math.min(part, left) : request.count === undefined ? undefined : left;
        const answer = await send("POST", path, {...request, ...(count === undefined ? {} : {count})}, {signal});
        const done = isCopy ? answer.copied : answer.moved;
        add(sum, answer, done);
        progress(sum.done);
        if (part === undefined) break;
        // Those that were refused are met again by each part: the last one goes past them.
        if (done < count) part = undefined;
        if (done === 0 && answer.matched === 0) break;
    }
    return sum;
}

function add(sum, answer, done) {
    sum.examined = Math.max(sum.examined, answer.examined + sum.done);
    sum.done += done;
    sum.stayed = answer.stayed;
    sum.matched = Math.max(sum.matched, sum.done);
    for (const [target, count] of Object.entries(answer.targets)) sum.targets[target] = (sum.targets[target] ?? 0) + count;
}
