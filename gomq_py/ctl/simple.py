"""Commands that send one request each, from one table."""
import click

from gomq_py.ctl.commands import ctl
from gomq_py.ctl.completion import argument

VHOST, NAME = object(), object()
# command: (its argument or None, verb, path, help). The argument's name selects its completion.
REQUESTS = {
    "delete_user": ("user", "DELETE", ("users", NAME), "Take a user away; its connections are closed."),
    "clear_permissions": (
        "user", "DELETE", ("permissions", VHOST, NAME), "Take a user's rights in the virtual host away."
    ),
    "clear_topic_permissions": (
        "user", "DELETE", ("topic-permissions", VHOST, NAME), "Take a user's limits on routing keys away."
    ),
    "delete_vhost": ("vhost", "DELETE", ("vhosts", NAME), "Delete a virtual host with everything in it."),
    "enable_vhost_deletion_protection": (
        "vhost", "POST", ("vhosts", NAME, "deletion", "protection"),
        "Protect a virtual host: nobody deletes it until that is lifted."),
    "disable_vhost_deletion_protection": (
        "vhost", "DELETE", ("vhosts", NAME, "deletion", "protection"),
        "Let a virtual host be deleted again."),
    "purge_queue": (
        "queue", "DELETE", ("queues", VHOST, NAME, "contents"), "Drop every ready message of a queue."
    ),
    "pause_queue": (
        "queue", "PUT", ("queues", VHOST, NAME, "pause"), "Deliver nothing from a queue until it is resumed."
    ),
    "resume_queue": ("queue", "PUT", ("queues", VHOST, NAME, "resume"), "Deliver again."),
    "restart_queue": (
        "queue", "PUT", ("queues", VHOST, NAME, "restart"), "Open a queue again that a fault closed."
    ),
    "clear_policy": ("policy", "DELETE", ("policies", VHOST, NAME), "Take a policy away."),
    "clear_operator_policy": (
        "operator_policy", "DELETE", ("operator-policies", VHOST, NAME), "Take an operator policy away."
    ),
    "delete_shovel": (
        "shovel", "DELETE", ("parameters", "shovel", VHOST, NAME), "Take a shovel's definition away."
    ),
    "pause_shovel": (
        "shovel", "PUT", ("shovels", VHOST, NAME, "pause"), "Have a shovel move nothing until it is resumed."
    ),
    "resume_shovel": ("shovel", "PUT", ("shovels", VHOST, NAME, "resume"), "Have a shovel go on."),
    "restart_shovel": (
        "shovel", "PUT", ("shovels", VHOST, NAME, "restart"),
        "Have a shovel connect anew, or begin where it waits."
    ),
    "delete_federation": (
        "upstream", "DELETE", ("parameters", "federation-upstream", VHOST, NAME),
        "Take an upstream's definition away.",
    ),
    "restart_federation_link": (
        "federation_link", "PUT", ("federation-links", "vhost", VHOST, NAME, "restart"),
        "Have a link, which federation_status names, connect anew.",
    ),
    "gc_collect": (
        None, "POST", ("nodes", "gc_collect"), "Collect garbage and give memory back to the system."
    ),
}


def _request(name, takes, verb, path, text):
    @click.pass_obj
    def run(session, **given):
        there = {VHOST: session.vhost, NAME: given.get(takes)}
        session.api.request(verb, [there.get(part, part) for part in path], {} if verb != "DELETE" else None)

    ctl.command(name, help=text)(argument(takes)(run) if takes else run)


for _name, _what in REQUESTS.items():
    _request(_name, *_what)
