"""Commands that send one request each, most of them from one table."""
from gomq_py.ctl.commands import command
from gomq_py.ctl.session import argument

# command: (arguments, verb, path, help); an argument in brackets is optional. The body has the arguments that
# are given and not in the path; {vhost} is the session's, unless it is an argument.
REQUESTS = {
    "delete_user": ("user", "DELETE", "users/{user}", "Take a user away; its connections are closed."),
    "set_permissions": (
        "user configure write read", "PUT", "permissions/{vhost}/{user}",
        "Grant rights in the virtual host: three regular expressions.",
    ),
    "clear_permissions": (
        "user", "DELETE", "permissions/{vhost}/{user}", "Take a user's rights in the virtual host away."
    ),
    "set_topic_permissions": (
        "user exchange write read", "PUT", "topic-permissions/{vhost}/{user}",
        "Limit the routing keys that a user may publish and bind with: two regular expressions.",
    ),
    "clear_topic_permissions": (
        "user", "DELETE", "topic-permissions/{vhost}/{user}", "Take a user's limits on routing keys away."
    ),
    "delete_vhost": ("vhost", "DELETE", "vhosts/{vhost}", "Delete a virtual host with everything in it."),
    "enable_vhost_deletion_protection": (
        "vhost", "POST", "vhosts/{vhost}/deletion/protection",
        "Protect a virtual host: nobody deletes it until that is lifted."),
    "disable_vhost_deletion_protection": (
        "vhost", "DELETE", "vhosts/{vhost}/deletion/protection", "Let a virtual host be deleted again."),
    "purge_queue": (
        "queue", "DELETE", "queues/{vhost}/{queue}/contents", "Drop every ready message of a queue."
    ),
    "pause_queue": (
        "queue", "PUT", "queues/{vhost}/{queue}/pause", "Deliver nothing from a queue until it is resumed."
    ),
    "resume_queue": ("queue", "PUT", "queues/{vhost}/{queue}/resume", "Deliver again."),
    "restart_queue": (
        "queue", "PUT", "queues/{vhost}/{queue}/restart", "Open a queue again that a fault closed."
    ),
    "clear_policy": ("policy", "DELETE", "policies/{vhost}/{policy}", "Take a policy away."),
    "clear_operator_policy": (
        "operator_policy", "DELETE", "operator-policies/{vhost}/{operator_policy}",
        "Take an operator policy away."
    ),
    "clear_parameter": (
        "component name", "DELETE", "parameters/{component}/{vhost}/{name}",
        "Take back what set_parameter has defined."
    ),
    "delete_shovel": (
        "shovel", "DELETE", "parameters/shovel/{vhost}/{shovel}", "Take a shovel's definition away."
    ),
    "pause_shovel": (
        "shovel", "PUT", "shovels/{vhost}/{shovel}/pause", "Have a shovel move nothing until it is resumed."
    ),
    "resume_shovel": ("shovel", "PUT", "shovels/{vhost}/{shovel}/resume", "Have a shovel go on."),
    "restart_shovel": (
        "shovel", "PUT", "shovels/{vhost}/{shovel}/restart",
        "Have a shovel connect anew, or begin where it waits."
    ),
    "delete_federation": (
        "upstream", "DELETE", "parameters/federation-upstream/{vhost}/{upstream}",
        "Take an upstream's definition away.",
    ),
    "restart_federation_link": (
        "federation_link", "PUT", "federation-links/vhost/{vhost}/{federation_link}/restart",
        "Have a link, which federation_status names, connect anew.",
    ),
    "delete_mqtt_session": (
        "client_id", "DELETE", "mqtt/sessions/{vhost}/{client_id}",
        "End the session of an MQTT client, with its subscriptions and messages.",
    ),
    "delete_mqtt_retained": (
        "topic", "DELETE", "mqtt/retained/{vhost}/{topic}", "Retain nothing for a topic any more."
    ),
    "transfer_leadership": (
        "[node]", "POST", "cluster/transfer-leadership",
        "Let another node that is in sync, by name, address or id, lead in place of this one, which follows "
        "then. Clients connect anew.",
    ),
    "forget_cluster_node": (
        "node", "DELETE", "cluster/nodes/{node}",
        "Remove a node, by name, address or id, that does not come back, from the in-sync set and from the "
        "list of nodes. On the leader. A node that is connected is not forgotten; one that comes back joins "
        "again.",
    ),
    "cluster_adopt": (
        "", "POST", "cluster/adopt",
        "Write the cluster's keys, which etcd has lost, anew from this node's data folder. Do it on the node "
        "that led last: what only others have is lost.",
    ),
    "accept_damage": (
        "", "POST", "cluster/accept-damage",
        "Let followers sync from this leader, although it has found damage in its data folder. They lose "
        "what is damaged here.",
    ),
    "set_cluster_name": ("name", "PUT", "cluster-name", "Give the cluster another name."),
    "clear_global_parameter": (
        "name", "DELETE", "global-parameters/{name}", "Take back what set_global_parameter has defined."),
    "set_log_level": (
        "value", "PUT", "settings/log_level",
        "Log no lines below a level (debug, info, warn, error, fatal, none) until the next reload or start.",
    ),
    "gc_collect": ("", "POST", "nodes/gc_collect", "Collect garbage and give memory back to the system."),
}


def _request(name, arguments, verb, path, text):
    def run(session, **given):
        parts = [part.format_map({"vhost": session.vhost, **given}) for part in path.split("/")]
        body = {
            key: value for key, value in given.items() if value is not None and f"{{{key}}}" not in path}
        session.api.request(verb, parts, body if verb != "DELETE" else None)

    for each in reversed(arguments.split()):
        run = argument(each.strip("[]"), required=not each.startswith("["))(run)
    command(name, help=text)(run)


for _name, _what in REQUESTS.items():
    _request(_name, *_what)


@command("suspend_listeners")
def suspend_listeners(session):
    """Refuse new clients at the TCP ports of AMQP and MQTT, until resume_listeners or the next start.
    Connected clients go on.
    """
    session.api.put("listeners", body={"suspended": True})


@command("resume_listeners")
def resume_listeners(session):
    """Accept clients again after suspend_listeners."""
    session.api.put("listeners", body={"suspended": False})
