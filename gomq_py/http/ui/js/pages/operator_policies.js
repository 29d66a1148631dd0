// Operator policies: what the operator holds, whatever queues ask for.

import {showFamily} from "./policies.js";

export const title = () => "Operator policies";

export function show(root, params, context) {
    return showFamily(root, context, {id: "operator-policies", heading: title(), path: "operator-policies", tag: "administrator",
        what: "Limits set by an operator. If an argument or policy gives another number, the lower one applies."});
}
