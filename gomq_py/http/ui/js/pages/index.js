// The table of pages, in the order of the menu. A page without a label is not in the menu. path: names behind
// a colon are params; tag: whom it is for (management, monitoring, policymaker, administrator); load brings
// the module when it is first shown.

export const PAGES = [
    {path: "/queues", group: "Messages", label: "Queues", load: () => import("./queues.js")},
];
