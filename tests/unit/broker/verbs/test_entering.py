"""Who comes in, and where to, in the core's errors: doors say them in their own words."""
import contextlib

import pytest

from gomq_py.auth.errors import LoginRefused
from gomq_py.broker.verbs.entering import check_credentials, enter
from gomq_py.errors import AccessRefused, NotFound, OutOfResources
from tests.support.node import Node


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path)
    node.broker.users.set_user("bob", "secret", grants=("/",))
    yield node
    node.stop()


class Connection:
    door = "a door"

    def __init__(self, user, vhost):
        self.user, self.vhost = user, vhost

    def cut_off(self):
        """The hub is closed."""


def connected(node, user, vhost):
    node.hub.clients.register(Connection(user, vhost))


class Unhurried:
    """Of a client that has all the time there is; remembers whether it was asked to wait."""

    def __init__(self):
        self.pauses = 0

    @contextlib.contextmanager
    def paused(self):
        self.pauses += 1
        yield


def check(node, password, deadline=None):
    return check_credentials(
        node.broker.logins, node.hub.clients, "bob", password, "127.0.0.1",
        Unhurried() if deadline is None else deadline)


def test_right_password_is_a_user_and_counted(node):
    deadline = Unhurried()

    user = check(node, b"secret", deadline)

    churn = node.hub.clients.churn
    assert (user.name, deadline.pauses, churn.logins_succeeded, churn.logins_failed) == ("bob", 1, 1, 0)


def test_user_whom_a_certificate_names_waits_for_nothing(node):
    deadline = Unhurried()

    assert check(node, None, deadline).name == "bob" and deadline.pauses == 0


@pytest.mark.parametrize("password", [b"wrong", b"secret"])
def test_wrong_password_is_refused_and_counted_and_so_is_any_while_logins_are_refused(node, password):
    node.hub.clients.refusing_logins = password == b"secret"

    with pytest.raises(LoginRefused):
        check(node, password)

    churn = node.hub.clients.churn
    assert (churn.logins_succeeded, churn.logins_failed) == (0, 1)


def test_login_that_ends_while_leave_is_taken_is_none(node):
    node.hub.clients.is_closing = True

    check(node, b"secret")

    assert node.hub.clients.churn.logins_succeeded == 0


@pytest.mark.parametrize("hinders, error, text", [
    ("no vhost", NotFound, "vhost other not found"),
    ("no permission", AccessRefused, "access to vhost '/' refused for user 'bob'"),
    (
        "the vhost is full", OutOfResources,
        "access to vhost '/' refused for user 'bob': connection limit (1) is reached",
    ),
    (
        "the user has enough", OutOfResources,
        "connection refused for user 'bob': user connection limit (1) is reached",
    ),
    ("the broker is full", OutOfResources, "connection refused: node connection limit (1) is reached"),
])
def test_what_keeps_a_user_out_is_an_error_of_its_kind(node, hinders, error, text):
    broker = node.broker
    user, guest, vhost = broker.users.get("bob"), broker.users.get("guest"), node.vhost
    if hinders == "no permission":
        broker.users.delete_permission("bob", "/")
    elif hinders == "the vhost is full":
        broker.parameters.set(vhost, "vhost-limits", "limits", {"max-connections": 1})
        connected(node, guest, vhost)
    elif hinders == "the user has enough":
        broker.user_limits.set("bob", "max-connections", 1)
        connected(node, user, vhost)
    elif hinders == "the broker is full":
        connected(node, guest, vhost)

    with pytest.raises(error) as raised:
        enter(
            broker, node.hub.clients, user, "other" if hinders == "no vhost" else "/", "a door",
            1 if hinders == "the broker is full" else 0,
        )

    assert type(raised.value) is error and raised.value.text == text


def test_last_place_is_given(node):
    node.broker.user_limits.set("bob", "max-connections", 1)
    node.broker.parameters.set(node.vhost, "vhost-limits", "limits", {"max-connections": 1})

    assert enter(node.broker, node.hub.clients, node.broker.users.get("bob"), "/", "a door", 1) is node.vhost


def test_connections_of_one_door_take_no_place_of_another(node):
    connected(node, node.broker.users.get("guest"), node.vhost)

    assert enter(
        node.broker, node.hub.clients, node.broker.users.get("bob"), "/", "another door", 1
    ) is node.vhost
