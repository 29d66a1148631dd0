"""A refused login takes as long as any other, whoever it names:
counted in hashes, for a busy machine is no clock.
"""

import threading

import bcrypt
import gevent
import pytest

from gomq_py.auth import passwords
from gomq_py.auth.errors import LoginRefused
from gomq_py.auth.logins import Logins
from gomq_py.auth.users import Users
from gomq_py.broker.routing.route import ExchangeState
from gomq_py.hub.scheduler import Scheduler
from gomq_py.storage.flush.group_commit import GroupCommit
from tests.support.unflushed import Unflushed
from tests.support.waiting import TIMEOUT_S, wait_until

KINDS = ("cheap", "costly4", "costly6", "costly7", "without a password", "nobody")


@pytest.fixture
def users(tmp_path):
    files = Unflushed()
    committer = GroupCommit(files, enabled=False)
    users = Users(files, str(tmp_path / "users"), committer, Scheduler(), ExchangeState)
    yield users.open()
    users.close()


@pytest.fixture
def spent(monkeypatch):
    """[(cost, whether in a thread)] of every bcrypt hash that is computed."""
    spent = []

    def note(function, cost_of):
        def noting(password, other):
            spent.append((cost_of(other), threading.current_thread() is not threading.main_thread()))
            return function(password, other)

        return noting

    monkeypatch.setattr(bcrypt, "checkpw", note(bcrypt.checkpw, lambda other: int(other[4:6])))
    monkeypatch.setattr(bcrypt, "hashpw", note(bcrypt.hashpw, lambda other: int(other[4:6])))
    return spent


def fill(users, kinds):
    for kind in kinds:
        if kind.startswith("costly"):
            users.set_user(
                kind, password_hash=bcrypt.hashpw(b"right", bcrypt.gensalt(int(kind[-1]))).decode()
            )
        elif kind != "nobody":
            users.set_user(kind, password="right" if kind == "cheap" else None)


def refuse(users, name, spent):
    """The work that it takes: each cost is twice the one before."""
    spent.clear()
    with pytest.raises(LoginRefused):
        Logins(users).login(name, "wrong", "192.0.2.1")
    assert all(in_thread for _, in_thread in spent)
    return sum(1 << cost for cost, _ in spent)


@pytest.mark.parametrize("kinds", [("cheap",), ("cheap", "costly4"), ("cheap", "costly4", "costly6"), KINDS])
def test_refused_logins_take_the_same_work_whoever_they_name(users, spent, kinds):
    fill(users, kinds)

    work = {kind: refuse(users, kind, spent) for kind in (*kinds, "nobody")}

    costliest = max((1 << int(kind[-1]) for kind in kinds if kind.startswith("costly")), default=0)
    assert set(work.values()) == {costliest}


def test_the_work_of_a_refused_login_goes_with_the_users(users, spent):
    fill(users, KINDS)
    before = refuse(users, "nobody", spent)

    users.delete_user("costly7")
    then = refuse(users, "nobody", spent)
    users.set_user("costly6", password="cheap now")
    after = refuse(users, "nobody", spent)

    assert (before, then, after) == (1 << 7, 1 << 6, 1 << 4)


def test_a_right_password_costs_its_own_hash_once(users, spent):
    fill(users, KINDS)
    logins = Logins(users)
    spent.clear()

    for _ in range(3):
        assert logins.login("costly4", "right", "192.0.2.1").name == "costly4"
        assert logins.login("cheap", "right", "192.0.2.1").name == "cheap"

    assert [cost for cost, _ in spent] == [4]


def test_who_came_in_before_comes_in_at_once_while_nobody_fails_as_it(users):
    fill(users, ("cheap",))
    logins = Logins(users)

    def at_once(name="cheap", password=b"right", address="192.0.2.1"):
        return logins.login_at_once(name, password, address)

    assert at_once() is None
    assert logins.login("cheap", b"right", "192.0.2.1") is at_once()
    assert [at_once(name="nobody"), at_once(password=b"wrong"), at_once(address="192.0.2.2")] == [None] * 3

    with pytest.raises(LoginRefused):
        logins.login("cheap", b"wrong", "192.0.2.1")
    assert at_once() is None


def test_nobody_comes_in_at_once_with_a_password_that_was_changed(users):
    fill(users, ("cheap",))
    logins = Logins(users)
    logins.login("cheap", "right", "192.0.2.1")

    users.set_user("cheap", password="other")
    after_change = logins.login_at_once("cheap", "right", "192.0.2.1")
    users.delete_user("cheap")

    assert after_change is None
    assert logins.login_at_once("cheap", "right", "192.0.2.1") is None


def test_nobody_comes_in_at_once_where_tokens_are_asked_first(users):
    fill(users, ("cheap",))
    logins = Logins(users, ("oauth", "local"))
    logins.login("cheap", "right", "192.0.2.1")

    assert logins.login_at_once("cheap", "right", "192.0.2.1") is None


@pytest.mark.parametrize(
    ("password_hash", "cost"),
    [
        ("$2b$12$abc", 12),
        ("$2a$04$abc", 4),
        ("$2y$15$", 15),
        ("$2b$31$abc", 0),
        ("$2b$99$", 0),
        ("$2b$xx$", 0),
        ("$2b$", 0),
        ("c2FsdA==", 0),
        ("", 0),
    ],
)
def test_only_costs_that_can_be_spent_are_costs(password_hash, cost):
    assert passwords.bcrypt_cost(password_hash) == cost


@pytest.fixture
def login_of_ann(users, monkeypatch):
    """A greenlet that logs her in with the password ``old``, which is being checked;
    ``go_on()`` ends that.
    """
    begun, go_on, real = threading.Event(), threading.Event(), bcrypt.checkpw

    def slow(password, password_hash):
        begun.set()
        assert go_on.wait(TIMEOUT_S)
        return real(password, password_hash)

    users.set_user("ann", password_hash=bcrypt.hashpw(b"old", bcrypt.gensalt(4)).decode())
    monkeypatch.setattr(bcrypt, "checkpw", slow)
    login = gevent.spawn(Logins(users).login, "ann", "old", "192.0.2.1")
    wait_until(begun.is_set, sleep=gevent.sleep)
    login.go_on = go_on.set
    yield login
    go_on.set()


@pytest.mark.parametrize("change", ["another of the name", "another password", "none of the name"])
def test_password_that_is_none_any_more_when_it_has_been_checked_lets_nobody_in(users, login_of_ann, change):
    """A costly check takes a tenth of a second in a thread; who logs in is who is there after it."""
    if change != "another password":
        users.delete_user("ann")
    if change != "none of the name":
        users.set_user("ann", password="new", tags=("administrator",))
    login_of_ann.go_on()

    with pytest.raises(
        LoginRefused, match="user 'ann' was deleted or given another password while logging in"
    ):
        login_of_ann.get(timeout=TIMEOUT_S)


def test_user_who_is_made_anew_with_the_same_hash_while_it_is_checked_comes_in(users, login_of_ann):
    """As an import of the same definitions does."""
    password_hash = users.delete_user("ann").password_hash
    users.set_user("ann", password_hash=password_hash)
    login_of_ann.go_on()

    assert login_of_ann.get(timeout=TIMEOUT_S) is users.get("ann")


def test_a_costly_hash_is_asked_in_a_thread_before_its_password_is_set_again(users, spent):
    """And set_user, which computes none itself, keeps it."""
    fill(users, ["costly4"])
    before = users.get("costly4").password_hash
    spent.clear()

    Logins(users).ask_ahead("costly4", "right", "192.0.2.1")
    users.set_user("costly4", password="right", tags=("management",))

    assert (users.get("costly4").password_hash, spent) == (before, [(4, True)])


def test_a_costly_hash_that_nobody_has_asked_gives_way_to_a_new_one(users, spent):
    """Asking it then would hold everybody up."""
    fill(users, ["costly4"])
    spent.clear()

    users.set_user("costly4", password="right")

    assert spent == [] and not passwords.is_costly(users.get("costly4").password_hash)
