"""Doors translate: what a user may do, and what that does to a vhost,
is decided in broker.verbs and in no door.
"""
import ast

import pytest

from tests.unit.source_tree import module_name, sources, tree

DOORS = ("gomq_py.amqp.server.", "gomq_py.mqtt.server.", "gomq_py.http.")
VERBS = "gomq_py.broker.verbs"
# What asks for a right of somebody: methods of users, permissions and Access.
CHECKS = {
    "allows", "permission", "topic_permission", "check_write_topic", "check_read_topic", "may_write",
    "may_publish",
}
# What needs a right: methods of VHost, Bindings and Queue.
NEEDS_A_RIGHT = {
    "declare_queue", "delete_queue", "pause_queue", "restart_queue", "purge", "purge_some",
    "declare_exchange", "delete_exchange", "bind_queue", "bind_exchange", "unbind_queue", "unbind_exchange",
    "route", "route_by_key", "route_watching",
}
# Rules that only the verbs need: module -> the names that a door may have of it.
RULES = {
    "gomq_py.broker.envelope": {"Envelope", "envelope_of"}, "gomq_py.auth.permissions": {"Permission"},
    "gomq_py.broker.transfer.moves": {"Filter", "Move"},
}
# (module, what it calls) -> why it is none of these all the same.
EXCEPTIONS = {
    ("gomq_py.amqp.server.fast_lane", "handler.route"): "asks its connection, which asks the verbs",
    ("gomq_py.http.api.permissions", "shapes.permission"): "the form in which one is shown",
    ("gomq_py.http.api.permissions", "shapes.topic_permission"): "the form in which one is shown",
    ("gomq_py.http.api.permissions", "find_user(user).permission"): "shows it",
    ("gomq_py.http.api.session", "g.user.permission"): "shows it",
    ("gomq_py.http.api.permissions", "_holder(user, vhost).permission"): "whether it is new",
    ("gomq_py.http.api.permissions", "holder.topic_permission"): "whether it is new",
}


def decided_here(module):
    """What a door decides that is a verb's business, as texts, of its syntax tree."""
    verbs, found = set(), []
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module == VERBS:
            verbs.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module in RULES:
            found += [f"import {alias.name}" for alias in node.names if alias.name not in RULES[node.module]]
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute):
            of = node.value
            of_access = isinstance(of, ast.Attribute) and of.attr == "access"
            fine = isinstance(of, ast.Name) and of.id in verbs | {"self"}
            if of_access or node.attr in CHECKS | NEEDS_A_RIGHT and not fine:
                found.append(ast.unparse(node))
    return found


def doors():
    return [path for path in sources() if module_name(path).startswith(DOORS)]


def test_doors_ask_for_no_rights_and_carry_out_no_verbs_themselves():
    wrong = [
        (module_name(path), what) for path in doors() for what in decided_here(tree(path))
        if (module_name(path), what) not in EXCEPTIONS
    ]

    assert wrong == []


def test_exceptions_are_still_needed():
    there = {(module_name(path), what) for path in doors() for what in decided_here(tree(path))}

    assert EXCEPTIONS.keys() - there == set()


@pytest.mark.parametrize("source, found", [
    ("channel.access.check_write('queue', name)", ["channel.access.check_write"]),
    ("there.declare_queue(name)", ["there.declare_queue"]),
    (
        "do = there.bindings.bind_queue if kind == 'q' else there.bindings.bind_exchange",
        ["there.bindings.bind_queue", "there.bindings.bind_exchange"],
    ),
    (
        "g.user.permission(vhost).allows('read', name)",
        ["g.user.permission", "g.user.permission(vhost).allows"],
    ),
    ("from gomq_py.broker.envelope import check_user_id", ["import check_user_id"]),
    ("queue.purge()", ["queue.purge"]),
    ("from gomq_py.broker.verbs import queues\nqueues.purge(caller, name)", []),
])
def test_what_is_looked_for_is_found(source, found):
    assert sorted(decided_here(ast.parse(source))) == sorted(found)
