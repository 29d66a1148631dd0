"""The supervisor: which shovels run, as whom, and what people are told; over a broker without doors."""
import json

import gevent
import pytest

from gomq_py.broker.topology_log import records
from gomq_py.broker.topology.definitions import Importer, exported
from gomq_py.broker.policies.parameters import OPERATOR
from gomq_py.shovel import supervisor
from gomq_py.shovel.definition import DefinitionError
from gomq_py.shovel.supervisor import COMPONENT, Shovels
from tests.support.no_switch import no_switch
from tests.support.node import Node
from tests.support.waiting import wait_until
from tests.unit.shovel.fake_link import Links

REMOTE = {
    "src-uri": "amqp://u:hush@a", "src-queue": "from", "dest-uri": "amqp://u:hush@b", "dest-queue": "to"}
LOCAL = {**REMOTE, "src-uri": "amqp://"}


class Broker:
    """A Node with shovels whose links are fakes; ``events`` are the keys and names of what is told."""

    def __init__(self, path, sections=None, is_started=True):
        self.node = Node(path)
        self.broker, self.vhost = self.node.broker, self.node.vhost
        self.links = Links()
        self.events = []
        self.broker.events.subscribe(self._heard)
        self.shovels = Shovels(self.broker, self.node.hub, self.links)
        self.shovels.take_over(sections or {})
        if is_started:
            self.shovels.start()

    def _heard(self, key, subjects):
        if key.startswith("shovel."):
            self.events.append((key, subjects[0].name, subjects[0].state))

    def put(self, name="s", value=None, by="guest", vhost=None):
        with no_switch():
            self.broker.parameters.set(vhost or self.vhost, COMPONENT, name, value or REMOTE, by)
        return self.shovels.find((vhost or self.vhost).name, name)

    def clear(self, name="s"):
        with no_switch():
            return self.broker.parameters.clear(self.vhost, COMPONENT, name)

    def shown(self, name="s"):
        return self.shovels.described(self.shovels.find("/", name))

    def stop(self):
        self.shovels.close()
        self.node.stop()


@pytest.fixture
def begin(tmp_path):
    """A function that starts a Broker over the same folder; those that went before are stopped."""
    running = []

    def begin_one(**options):
        while running:
            running.pop().stop()
        running.append(Broker(tmp_path / "data", **options))
        return running[-1]

    yield begin_one
    while running:
        running.pop().stop()


def test_a_shovel_that_is_set_runs_and_ends_with_its_parameter(begin):
    broker = begin()

    shovel = broker.put()
    link = broker.links.last
    link.become("running")
    assert (link.started, shovel.state, broker.shown()["state"]) == (1, "running", "running")

    broker.clear()

    assert link.stopped == 1 and broker.shovels.all() == []
    assert broker.events == [
        ("shovel.worker.status", "s", "starting"), ("shovel.worker.status", "s", "running"),
        ("shovel.worker.removed", "s", "stopped")]


def test_shovels_start_once_doors_are_open_and_again_after_a_restart(begin):
    broker = begin(is_started=False)
    broker.put()
    assert broker.links.opened == []
    broker.shovels.start()
    assert len(broker.links.opened) == 1

    again = begin()

    assert len(again.links.opened) == 1 and again.links.last.started == 1
    assert again.shovels.find("/", "s").by == "guest"


def test_of_very_many_some_begin_after_the_others(begin, monkeypatch):
    monkeypatch.setattr(supervisor, "STARTED_AT_ONCE", 2)
    broker = begin(is_started=False)
    for number in range(5):
        broker.put(f"s{number}")

    broker.shovels.start()
    assert len(broker.links.opened) == 2
    broker.put("s4", {**REMOTE, "dest-queue": "elsewhere"})  # which begins by itself
    broker.clear("s3")
    wait_until(lambda: len(broker.links.opened) == 4, sleep=gevent.sleep)

    assert {link.shovel.name: link.started for link in broker.links.opened} == dict.fromkeys(
        ("s0", "s1", "s2", "s4"), 1)


def test_a_shovel_that_is_set_anew_goes_on_with_the_new_definition_alone(begin):
    broker = begin()
    broker.put()

    broker.put(value={**REMOTE, "dest-queue": "elsewhere"})

    first, second = broker.links.opened
    assert (first.stopped, second.started) == (1, 1)
    assert second.shovel.definition.dest_queue == "elsewhere"
    first.become("error", "late")  # what the first still says is of no interest
    assert broker.shown()["state"] == "starting"


@pytest.mark.parametrize("value, text", [
    ({**REMOTE, "src-queue": None}, "src-queue or src-exchange is missing"), ("x", "a shovel is an object"),
])
def test_what_makes_no_shovel_is_refused_and_changes_nothing(begin, value, text):
    broker = begin()
    broker.put()

    with pytest.raises(ValueError, match=text):
        broker.put(value=value)

    assert broker.vhost.parameters[COMPONENT, "s"] == REMOTE and broker.links.last.stopped == 0


def test_pause_and_resume_stay_over_a_restart_per_vhost(begin):
    broker = begin()
    shovel = broker.put()
    other = broker.broker.create_vhost("other")
    broker.put(vhost=other)

    assert broker.shovels.pause(shovel) and not broker.shovels.pause(shovel)
    assert shovel.state == "paused" and broker.links.opened[0].stopped == 1

    again = begin()
    assert [one.state for one in again.shovels.all()] == ["paused", "starting"]
    paused = again.shovels.find("/", "s")
    assert again.shovels.resume(paused, "guest") and not again.shovels.resume(paused, "guest")
    assert paused.state == "starting"

    assert begin().shovels.find("/", "s").state == "starting"


def test_a_pause_goes_with_its_shovel(begin):
    broker = begin()
    broker.shovels.pause(broker.put())

    broker.clear()

    assert broker.put().state == "starting" and broker.vhost.notes == {}


def test_a_paused_shovel_that_is_set_anew_stays_paused(begin):
    broker = begin()
    broker.shovels.pause(broker.put())

    assert broker.put(value={**REMOTE, "dest-queue": "x"}).state == "paused"


def test_restart_opens_another_link(begin):
    broker = begin()
    shovel = broker.put()
    broker.links.last.end("error", "destination: NOT_FOUND")
    assert (shovel.state, shovel.error) == ("error", "destination: NOT_FOUND")

    broker.shovels.restart(shovel, "guest")

    assert (shovel.state, shovel.error, len(broker.links.opened)) == ("starting", "", 2)


def test_a_shovel_that_has_moved_what_it_should_removes_itself(begin):
    broker = begin()
    broker.put(value={**REMOTE, "src-delete-after": "queue-length"})

    broker.links.last.end("terminated")

    assert broker.shovels.all() == [] and (COMPONENT, "s") not in broker.vhost.parameters
    assert begin().shovels.all() == []


def test_one_without_such_an_end_stays(begin):
    broker = begin()
    broker.put()

    broker.links.last.end("terminated")

    assert broker.shown()["state"] == "terminated"


def test_those_of_a_deleted_vhost_end(begin):
    broker = begin()
    other = broker.broker.create_vhost("other")
    broker.put(vhost=other)

    broker.broker.delete_vhost("other")
    broker.broker.wait_until_gone("other")

    assert broker.shovels.all() == [] and broker.links.last.stopped == 1
    assert broker.broker.create_vhost("other").notes == {}


def test_what_was_set_while_nothing_acted_on_it_waits_until_somebody_starts_it(begin, tmp_path):
    node = Node(tmp_path / "data")
    Importer(node.broker, by="guest").run({
        "parameters": [{"vhost": "/", "component": COMPONENT, "name": "s", "value": LOCAL}]})
    node.stop()

    broker = begin()
    shovel = broker.shovels.find("/", "s")
    assert (shovel.state, broker.links.opened) == ("waiting", [])
    assert "set it again" in shovel.error

    broker.shovels.restart(shovel, "guest")

    assert broker.shovels.find("/", "s").state == "starting" and len(broker.links.opened) == 1
    assert begin().shovels.find("/", "s").state == "starting"


# rights

def test_a_local_end_works_as_the_user_who_set_it(begin):
    broker = begin()
    broker.put(value=LOCAL)

    assert broker.links.last.user_of() is broker.broker.users.get("guest")


def test_the_operator_of_the_machine_may_everything(begin):
    broker = begin()
    broker.put(value=LOCAL, by=OPERATOR)

    user = broker.links.last.user_of()

    assert user.permission("/").allows("read", "from") and user.name not in broker.broker.users


@pytest.mark.parametrize("by, value, text", [
    (None, LOCAL, "no user of this broker"), ("nobody", LOCAL, "user 'nobody' is gone"),
    ("plain", LOCAL, "has not the tag policymaker"), ("stranger", LOCAL, "access to vhost '/' refused"),
    ("maker", LOCAL, "access to queue 'from' in vhost '/' refused for user 'maker'"),
    ("maker", {**REMOTE, "dest-uri": "amqp://"}, "access to exchange 'amq.default' in vhost '/' refused"),
    ("guest", {**LOCAL, "src-uri": "amqp://guest:hush@"}, "has no user, password or port"),
    ("guest", {**LOCAL, "src-uri": "amqp:///nowhere"}, "there is no virtual host 'nowhere'"),
])
def test_who_may_not_have_a_local_end_is_refused(begin, by, value, text):
    broker = begin()
    users = broker.broker.users
    users.set_user("plain", password="x", tags=("management",), grants=("/",))
    users.set_user("stranger", password="x", tags=("policymaker",))
    users.set_user("maker", password="x", tags=("policymaker",))
    users.set_permission("maker", "/", ".*", "^mine", "^mine")

    with pytest.raises(ValueError) as refused:
        broker.put(value=value, by=by)

    assert text in str(refused.value) and broker.links.opened == []


def test_ends_elsewhere_ask_for_no_rights_here(begin):
    broker = begin()

    assert broker.put(by=None).state == "starting"


@pytest.mark.parametrize("withdraw, restore", [
    (lambda users: users.delete_permission("maker", "/"),
     lambda users: users.set_permission("maker", "/", ".*", ".*", ".*")),
    (lambda users: users.set_permission("maker", "/", ".*", ".*", "^$"),
     lambda users: users.set_permission("maker", "/", ".*", ".*", ".*")),
    (lambda users: users.set_tags("maker", ("management",)),
     lambda users: users.set_tags("maker", ("policymaker",))),
    (lambda users: users.set_user("maker", password="y", tags=()),
     lambda users: users.set_user("maker", password="y", tags=("policymaker",))),
])
def test_a_local_end_stops_when_rights_are_withdrawn_and_goes_on_when_they_are_back(begin, withdraw, restore):
    broker = begin()
    users = broker.broker.users
    users.set_user("maker", password="x", tags=("policymaker",), grants=("/",))
    shovel = broker.put(value=LOCAL, by="maker")
    elsewhere = broker.put("elsewhere", by="maker")

    withdraw(users)

    assert shovel.state == "error" and "maker" in shovel.error and broker.links.opened[0].stopped == 1
    assert elsewhere.state == "starting"

    restore(users)
    assert (shovel.state, shovel.error) == ("starting", "")


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_user_of_the_same_name_does_not_inherit_what_a_deleted_one_has_set(begin, is_kept):
    """Nor where the deletion was the last that was kept before a crash."""
    broker = begin()
    users = broker.broker.users
    users.set_user("maker", password="x", tags=("policymaker",), grants=("/",))
    shovel = broker.put(value=LOCAL, by="maker")
    broker.put("other", LOCAL, "guest")
    if not is_kept:
        users.rights_watchers.clear()

    users.delete_user("maker")
    if is_kept:
        assert shovel.state == "error" and shovel.error.endswith("or was deleted")
        users.set_user("maker", password="x", tags=("policymaker",), grants=("/",))
        assert shovel.state == "error" and broker.links.opened[0].stopped == 1

    again = begin()
    again.broker.users.set_user("maker", password="x", tags=("policymaker",), grants=("/",))
    assert [one.state for one in again.shovels.all()] == ["starting", "error"]
    assert again.put(value=LOCAL, by="maker").state == "starting"


def test_rights_are_asked_for_at_each_start(begin):
    broker = begin()
    broker.broker.users.set_user("maker", password="x", tags=("policymaker",), grants=("/",))
    broker.put(value=LOCAL, by="maker")
    broker.shovels.close()
    broker.broker.users.delete_user("maker")

    again = begin()

    assert again.shovels.find("/", "s").error.endswith("or was deleted") and again.links.opened == []


def test_who_set_it_is_no_part_of_exports(begin):
    broker = begin()
    broker.put()

    (entry,) = exported(broker.broker)["parameters"]

    assert entry == {"component": COMPONENT, "name": "s", "vhost": "/", "value": REMOTE}


# the configuration

SECTION = {"src-uri": "amqp://", "src-queue": "from", "dest-uri": "amqp://b", "dest-queue": "to"}


def test_shovels_of_the_configuration_run_with_all_rights_and_can_be_paused_but_not_deleted(begin):
    broker = begin(sections={"fixed": SECTION})
    shovel = broker.shovels.find("/", "fixed")
    assert (shovel.type, shovel.state) == ("static", "starting")
    assert broker.links.last.user_of().permission("/") is not None

    broker.shovels.pause(shovel)
    with pytest.raises(DefinitionError, match="is in the configuration"):
        broker.shovels.delete(shovel)
    with pytest.raises(DefinitionError, match="is in the configuration already"):
        broker.put("fixed")

    assert begin(sections={"fixed": SECTION}).shovels.find("/", "fixed").state == "paused"


def test_asking_why_a_shovel_cannot_be_deleted_changes_nothing(begin):
    broker = begin(sections={"fixed": SECTION})
    broker.put("s")
    fixed, dynamic = broker.shovels.find("/", "fixed"), broker.shovels.find("/", "s")

    assert "the configuration file, which owns it" in fixed.why_kept
    assert dynamic.why_kept is None

    assert {one.name: one.state for one in broker.shovels.all()} == {"fixed": "starting", "s": "starting"}
    assert ("shovel", "s") in dynamic.vhost.parameters


def test_a_parameter_of_the_same_name_as_one_of_the_configuration_has_no_effect(begin):
    begin().put("fixed")

    broker = begin(sections={"fixed": SECTION})
    assert broker.shovels.find("/", "fixed").type == "static" and len(broker.links.opened) == 1
    broker.clear("fixed")

    assert broker.shovels.find("/", "fixed").state == "starting"


def test_a_section_that_makes_no_shovel_is_refused_with_its_name(begin):
    with pytest.raises(DefinitionError, match=r"section \[shovel:fixed\]: src-queue or src-exchange"):
        begin(sections={"fixed": {"src-uri": "amqp://", "dest-uri": "amqp://b"}})


def test_objects_of_a_section_are_checked_as_those_of_a_parameter(begin):
    with pytest.raises(DefinitionError, match=r"section \[shovel:fixed\]: .*no JSON holds"):
        begin(sections={"fixed": {**SECTION, "dest-publish-properties": '{"headers": {"a": Infinity}}'}})


def test_a_section_of_a_vhost_that_is_not_there_leaves_the_others(begin):
    broker = begin(sections={"one": {**SECTION, "vhost": "nowhere"}, "two": SECTION})

    assert [(shovel.name, shovel.state) for shovel in broker.shovels.all()] == [
        ("two", "starting"), ("one", "error")]


def test_a_section_of_a_vhost_that_is_not_there_is_shown_and_begins_when_that_comes(begin):
    broker = begin(sections={"one": {**SECTION, "vhost": "later"}, "two": SECTION})
    assert broker.shovels.missing_vhosts() == ["later"]
    assert broker.shovels.find("later", "one").error == "there is no virtual host 'later' in this broker"

    for number in (1, 2):
        later = broker.broker.create_vhost("later")
        shovel = broker.shovels.find("later", "one")
        assert (shovel.vhost, shovel.state) == (later, "starting")
        assert broker.shovels.missing_vhosts() == [] and len(broker.links.opened) == 1 + number
        assert broker.shovels.pause(shovel) and shovel.state == "paused"

        broker.broker.delete_vhost("later")
        shovel = broker.shovels.find("later", "one")
        assert shovel.state == "error" and broker.links.last.stopped == 1
        assert broker.shovels.described(shovel)["error"].startswith("there is no virtual host")


DEEP = 0
for _ in range(60):
    DEEP = [DEEP]


@pytest.mark.parametrize("value", [
    None, 5, "x", [], [REMOTE], {}, {"src-uri": REMOTE}, {**REMOTE, "src-uri": None},
    {**REMOTE, "src-uri": []}, {**REMOTE, "src-uri": ["amqp://[::1"]}, {**REMOTE, "dest-uri": "http://[x"},
    {**REMOTE, "src-uri": ["amqp://a"] * 10_000}, {**REMOTE, "src-uri": DEEP},
    {**REMOTE, "src-uri": "amqp://a:99999999999999999999"},
    {**REMOTE, "src-prefetch-count": 1 << 70}, {**REMOTE, "src-prefetch-count": -1},
    {**REMOTE, "src-prefetch-count": 1e308}, {**REMOTE, "reconnect-delay": 1 << 2000},
    {**REMOTE, "reconnect-delay": {}}, {**REMOTE, "src-delete-after": {}}, {**REMOTE, "ack-mode": []},
    {**REMOTE, "ack-mode": {"a": 1}}, {**REMOTE, "src-queue": "\ud800" * 200},
    {**REMOTE, "dest-publish-properties": {"headers": DEEP}},
    {**REMOTE, "dest-publish-properties": {"priority": 1 << 70}},
    {**REMOTE, "dest-publish-properties": {"headers": {"n": 1 << 70}}},
    {**REMOTE, "dest-publish-properties": {"headers": {"n": {"a": DEEP}}}},
    {**REMOTE, "dest-publish-properties": {"headers": {"x": "x" * 200_000}}},
    {**REMOTE, "src-queue-args": {"n": 1 << 70}}, {**REMOTE, "src-consumer-args": {"a": DEEP}},
    {**REMOTE, "dest-queue-args": {"x": "x" * 200_000}}, {**REMOTE, "src-queue-args": {"\ud800": 1}},
    {**REMOTE, "nonsense": 1}, {**REMOTE, "prefetch-count": 1, "src-prefetch-count": 1},
], ids=lambda value: str(value)[-60:])
def test_bad_values_that_an_earlier_version_has_stored_are_shown_with_a_reason_and_others_run(begin, value):
    broker = begin()
    broker.broker._log.append(records.parameter_set("/", COMPONENT, "bad", json.dumps(value), False, "guest"))
    broker.put("good")

    again = begin()

    shown = {shovel.name: again.shovels.described(shovel) for shovel in again.shovels.all()}
    assert shown["good"]["state"] == "starting" and len(again.links.opened) == 1
    assert shown.get("bad", {"state": "error", "error": "left out"})["state"] == "error", shown["bad"]
    assert shown.get("bad", {"error": "left out"})["error"]


# what people see

def test_what_is_shown_has_rabbitmqs_names_and_no_password(begin):
    broker = begin()
    broker.put()
    link = broker.links.last
    link.status.source_uri, link.status.target_uri = "amqp://u:hush@a/v", "amqp://u:hush@b/v"
    link.status.blocked, link.status.moved, link.status.rate = True, 7, 3.5
    link.become("running", "source: amqp://u:hush@a/ was away")

    shown = broker.shown()

    assert "hush" not in repr(shown)
    assert {key: shown[key] for key in (
        "name", "vhost", "type", "state", "src_uri", "src_queue", "dest_queue", "blocked_status",
        "moved", "rate", "lag", "src_protocol")} == {
            "name": "s", "vhost": "/", "type": "dynamic", "state": "running",
            "src_uri": "amqp://a/v", "src_queue": "from", "dest_queue": "to",
            "blocked_status": "blocked", "moved": 7, "rate": 3.5, "lag": None,
            "src_protocol": "amqp091"}


def test_lag_of_a_queue_of_this_broker_is_what_is_ready_in_it(begin):
    broker = begin()
    broker.vhost.declare_queue("from", durable=True)
    broker.put(value=LOCAL)

    assert broker.shown()["lag"] == 0


def test_where_it_is_in_a_stream_is_kept_over_a_restart_and_of_no_use_for_another_stream(begin):
    broker = begin()
    value = {**REMOTE, "src-consumer-args": {"x-stream-offset": "first"}}
    broker.put(value=value)
    assert broker.links.last.begin_at is None
    broker.links.last.stream_offset = 41

    again = begin()
    assert again.links.last.begin_at == 42

    again.put(value={**value, "src-queue": "another"})
    assert again.links.last.begin_at is None
    again.clear()
    assert again.vhost.notes == {}


def test_where_it_is_in_a_stream_is_kept_while_it_runs(begin):
    broker = begin()
    broker.put(value={**REMOTE, "src-queue-args": {"x-queue-type": "stream"}})
    broker.links.last.stream_offset = 7

    broker.shovels._keep_offsets()

    assert broker.vhost.notes["shovel-offset", "s"]["next"] == 8


def test_the_next_link_begins_once_the_one_before_has_settled_what_was_on_its_way(begin):
    broker = begin()
    broker.put()
    first = broker.links.last
    first.ends_at_once = False

    shovel = broker.put(value={**REMOTE, "dest-queue": "x"})
    assert (len(broker.links.opened), shovel.state) == (1, "starting")
    broker.shovels.pause(shovel)
    broker.shovels.resume(shovel, "guest")
    assert len(broker.links.opened) == 1

    first.come_to_an_end()
    assert len(broker.links.opened) == 2 and broker.links.last.shovel is shovel


def test_one_that_is_paused_meanwhile_does_not_begin(begin):
    broker = begin()
    shovel = broker.put()
    broker.links.last.ends_at_once = False
    broker.shovels.restart(shovel, "guest")
    broker.shovels.pause(shovel)

    broker.links.last.come_to_an_end()

    assert (shovel.state, len(broker.links.opened)) == ("paused", 1)


def test_where_it_came_to_in_a_stream_while_it_ended_counts(begin):
    broker = begin()
    shovel = broker.put(value={**REMOTE, "src-consumer-args": {"x-stream-offset": "first"}})
    first = broker.links.last
    first.ends_at_once = False
    broker.shovels.restart(shovel, "guest")
    first.stream_offset = 99
    first.come_to_an_end()

    assert broker.links.last.begin_at == 100


def test_the_log_does_not_repeat_what_links_say_themselves(begin, caplog):
    broker = begin()
    broker.put("flooded")
    caplog.clear()

    for attempt in range(50):
        broker.links.last.become("starting", f"source: refused, attempt {attempt}")

    assert len(caplog.records) == 0 and broker.events[-1][0] == "shovel.worker.status"
