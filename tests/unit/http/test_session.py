"""Sessions over clocks that the test moves: how long each lasts, how many there are,
and what of them is kept.
"""
import gc

import pytest

from gomq_py.auth.users import User, Users
from gomq_py.http import session as session_module
from gomq_py.http.session import ENDS_AFTER_S, ENDS_IDLE_S, Sessions
from gomq_py.hub.scheduler import Scheduler
from gomq_py.storage.disk.files import Files


class State:
    revision = 0


class NoCommitter:
    """Nothing here waits for the disk."""

    enabled = False

    def mark_file(self, file):
        pass

    def mark_folder(self, path):
        pass


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def store(tmp_path):
    store = Users(Files(), tmp_path / "users", NoCommitter(), Scheduler(), State).open()
    for name in ("ann", "bob"):
        store.set_user(name, password=name, tags=("management", "policymaker"))
        store.set_permission(name, "/", "a", "b", "c")
    yield store
    store.close()


@pytest.fixture
def users(store):
    """The users by name."""
    return {user.name: user for user in store}


@pytest.fixture
def sessions(clock):
    return Sessions(now_s=lambda: clock[0], unix_s=lambda: clock[0])


def test_a_session_is_found_by_its_number_alone(sessions, users):
    number, session = sessions.begin(users["ann"])

    assert sessions.find(number) is session
    assert (
        [sessions.find(other) for other in ("", number[:-1], number + "A", "x" * 43, "\udc80")] == [None] * 5
    )


def test_what_is_kept_tells_neither_number_nor_token(sessions, users):
    """Of everything that can be reached from the sessions."""
    number, _ = sessions.begin(users["ann"])
    token = sessions.token(number)

    seen, left = {}, [sessions]
    while left:
        one = left.pop()
        if id(one) not in seen and not isinstance(one, type) and not callable(one):
            seen[id(one)] = one
            left += gc.get_referents(one)
    texts = [str(one) for one in seen.values() if isinstance(one, (str, bytes))]

    assert len(texts) > 3
    assert not [text for text in texts if number in text or token in text]


def test_numbers_and_tokens_are_long_and_never_the_same(sessions, users):
    numbers = {sessions.begin(users["ann"])[0] for _ in range(50)}

    assert len(numbers) == 50 and {len(number) for number in numbers} == {43}
    assert len({sessions.token(number) for number in numbers}) == 50
    assert Sessions().token("x") != Sessions().token("x")


def test_a_session_that_is_used_lasts_until_its_end(sessions, users, clock):
    number, session = sessions.begin(users["ann"])
    began = clock[0]

    while sessions.find(number) is not None:
        assert 0 < sessions.seconds_left(session) <= ENDS_IDLE_S
        clock[0] += ENDS_IDLE_S - 1

    assert began + ENDS_AFTER_S <= clock[0] < began + ENDS_AFTER_S + ENDS_IDLE_S
    assert len(sessions) == 0


def test_a_session_that_is_not_used_ends_sooner(sessions, users, clock):
    number, _ = sessions.begin(users["ann"])
    clock[0] += ENDS_IDLE_S

    assert sessions.find(number) is None


def test_a_session_of_a_token_ends_with_the_token(sessions, users, clock):
    class TokenUser(User):
        expires_at_s = clock[0] + 60

    user = TokenUser("eve", "", "", ("management",), State())
    number, session = sessions.begin(user)
    before = sessions.find(number)
    left = sessions.seconds_left(session)
    clock[0] += 60

    assert (before, left, sessions.find(number)) == (session, 60, None)


def password(store):
    store.set_user("ann", password="another", tags=("management", "policymaker"))


def tags(store):
    store.set_tags("ann", ("management",))


def tags_and_back(store):
    tags(store)
    store.set_tags("ann", ("management", "policymaker"))


def deleted(store):
    store.delete_user("ann")


def made_anew(store):
    ann = store.get("ann")
    deleted(store)
    same(store, ann)


@pytest.mark.parametrize("change", [password, tags, tags_and_back, deleted, made_anew])
def test_a_session_ends_when_its_user_is_another_than_at_its_begin(sessions, store, users, change):
    anns, session = sessions.begin(users["ann"])
    bobs, _ = sessions.begin(users["bob"])

    change(store)

    assert not sessions.is_good(session)
    assert sessions.find(anns) is None
    assert sessions.find(bobs) is not None


def same(store, ann=None):
    """As definitions are imported, with the tags in another order."""
    ann = ann or store.get("ann")
    store.set_user(
        "ann", password_hash=ann.password_hash, hashing_algorithm=ann.hashing_algorithm, tags=ann.tags[::-1]
    )


def same_tags(store):
    store.set_tags("ann", ["policymaker", "management"])


def same_rights(store):
    store.set_permission("ann", "/", "a", "b", "c")


def other_rights(store):
    store.set_permission("ann", "/", "", "", "")
    store.set_topic_permission("ann", "/", "amq.topic", "a", "b")


def another_vhost(store):
    store.set_permission("ann", "another", ".*", ".*", ".*")
    store.forget_vhost("another", "ann")


def limits(store):
    store.set_limits("ann", {"max-connections": 1})


@pytest.mark.parametrize("change", [same, same_tags, same_rights, other_rights, another_vhost, limits])
def test_a_session_outlives_what_does_not_change_the_login_of_its_user(sessions, store, users, change):
    number, session = sessions.begin(users["ann"])

    change(store)

    assert sessions.is_good(session)
    assert sessions.find(number) is session


def test_one_user_has_so_many_sessions_and_the_one_unused_for_longest_gives_way(sessions, users, monkeypatch):
    monkeypatch.setattr(session_module, "SESSIONS_OF_USER_MAX", 3)
    bobs, _ = sessions.begin(users["bob"])
    numbers = [sessions.begin(users["ann"])[0] for _ in range(3)]
    sessions.find(numbers[0])

    numbers.append(sessions.begin(users["ann"])[0])

    assert [sessions.find(number) is not None for number in (bobs, *numbers)] == [
        True, True, False, True, True
    ]


def test_there_are_so_many_sessions_in_all(sessions, users, monkeypatch):
    monkeypatch.setattr(session_module, "SESSIONS_MAX", 5)
    for number in range(20):
        sessions.begin(User(f"user-{number}", "", "", (), State()))

    assert len(sessions) == 5


def test_a_session_that_was_ended_is_found_no_more(sessions, users):
    number, session = sessions.begin(users["ann"])
    sessions.end(session)
    sessions.end(session)

    assert sessions.find(number) is None
