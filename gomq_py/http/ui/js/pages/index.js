// The table of pages, in the order of the menu. A page without a label is not in the menu. path: names behind
// a colon are params; tag: whom it is for (management, monitoring, policymaker, administrator); load brings
// the module when it is first shown.

export const PAGES = [
    {path: "/queues", group: "Messages", label: "Queues", load: () => import("./queues.js")},
    {path: "/queues/:vhost/:name/messages", load: () => import("./messages.js")},
    {path: "/queues/:vhost/:name/move", load: () => import("./move.js")},
    {path: "/publish", group: "Messages", label: "Publish", load: () => import("./publish.js")},
    {path: "/dead-letters", group: "Messages", label: "Dead letters", load: () => import("./dead_letters.js")},
    {path: "/dead-letters/:vhost/:name", load: () => import("./dead_letters.js")},
    {path: "/unacked", group: "Messages", label: "Unacknowledged", load: () => import("./unacked.js")},
    {path: "/unacked/:vhost/:name", load: () => import("./unacked.js")},
    {path: "/delayed", group: "Messages", label: "Delayed", load: () => import("./delayed.js")},
    {path: "/delayed/:vhost/:name", load: () => import("./delayed.js")},
    {path: "/streams/:vhost/:name/timeline", load: () => import("./timeline.js")},
    {path: "/tasks", group: "Messages", label: "Tasks", load: () => import("./tasks.js")},
    {path: "/topology", group: "Try", label: "Topology", load: () => import("./topology.js")},
    {path: "/try/amqp", group: "Try", label: "AMQP client", load: () => import("./try_amqp.js")},
    {path: "/try/mqtt", group: "Try", label: "MQTT client", load: () => import("./try_mqtt.js")},
    {path: "/mqtt", group: "MQTT", label: "Clients", load: () => import("./mqtt.js")},
    {path: "/mqtt/sessions", group: "MQTT", label: "Sessions", load: () => import("./mqtt.js")},
    {path: "/mqtt/retained", group: "MQTT", label: "Retained", load: () => import("./mqtt_retained.js")},
    {path: "/shovels", group: "Brokers", label: "Shovels", tag: ["policymaker", "monitoring"],
        load: () => import("./shovels.js")},
    {path: "/federation", group: "Brokers", label: "Federation", tag: ["policymaker", "monitoring"],
        load: () => import("./federation.js")},
    {path: "/log", group: "Admin", label: "Log", tag: "administrator", load: () => import("./log.js")},
    {path: "/definitions", group: "Admin", label: "Definitions", tag: "administrator",
        load: () => import("./definitions.js")},
];
