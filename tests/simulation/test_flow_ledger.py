"""The judges of MQTT flows: each promise that is broken by hand is found, and what is allowed is not."""
import pytest

from gomq_py.mqtt.wire.packets import PublishPacket
from tests.simulation.clock import CLOCK
from tests.simulation.flow_ledger import Flow, Group, Inbox, Wish
from tests.simulation.mqtt_flow import FOR_EVER, FlowSubscriber
from tests.simulation.world import World


@pytest.fixture
def world():
    CLOCK.now_s, CLOCK.jumps = 0.0, 0
    return World(1)


@pytest.fixture
def flow(world):
    return Flow(world, "f0")


@pytest.fixture
def inbox(world, flow):
    """One with subscriptions at QoS 2 to f0/a, with the identifier 3, and at QoS 1 to all, with 5."""
    return subscribed(Inbox(world, "i", flow, [Wish("f0/a", 2, 3), Wish("f0/#", 1, 5)]))


def subscribed(inbox):
    inbox.tells_identifiers = True
    inbox.opens()
    inbox.subscribed()
    return inbox


def publish(flow, count=1, topic="f0/a", qos=1, expiry_s=None):
    """Messages that were accepted."""
    for _ in range(count):
        number, _ = flow.publish_to(topic, qos, expiry_s)
        if qos:
            flow.accept(number)


def come(inbox, *numbers, dup=False, qos=None, identifiers=(3, 5), left_s=None, since_s=0.0):
    for number in numbers:
        properties = {"subscription_identifier": list(identifiers)}
        if left_s is not None:
            properties["message_expiry_interval"] = left_s
        qos_now = inbox.qos_of(number) if qos is None else qos
        inbox.check(number, PublishPacket(qos=qos_now, dup=dup, properties=properties), since_s)
        inbox.deliver(number, qos_now, None)


def findings(world):
    return [finding.split(": ", 2)[2] for finding in world.findings]


def test_message_that_was_accepted_and_does_not_come_is_found(world, flow, inbox):
    publish(flow, 3)
    come(inbox, 0, 2)

    inbox.check_complete()

    assert findings(world) == ["accepted and lost, or never delivered: [1] of 1"]


def test_messages_of_a_session_that_has_ended_may_be_lost(world, flow, inbox):
    publish(flow)
    inbox.session_ended()

    inbox.check_complete()

    assert findings(world) == []


def test_messages_of_one_topic_and_qos_out_of_order_are_found(world, flow, inbox):
    publish(flow, 2)
    publish(flow, topic="f0/b")

    come(inbox, 2, identifiers=[5])
    come(inbox, 1, 0)

    assert findings(world) == ["0 came after 1, of one publisher, topic and QoS"]


def test_message_that_was_not_answered_before_a_power_cut_may_come_late(world, flow, inbox):
    flow.publish_to("f0/a", 1)
    publish(flow)
    flow.power_was_cut()

    come(inbox, 1, 0)

    assert findings(world) == []


@pytest.mark.parametrize("qos, found", [(0, []), (1, ["0 came after 1, of one publisher, topic and QoS"])])
def test_message_that_its_publisher_has_sent_again_may_be_late_at_qos_0(world, flow, inbox, qos, found):
    publish(flow, 2)
    inbox.closes()
    come(inbox, 1, qos=qos)

    flow.sends_again(0)
    come(inbox, 0, qos=qos)

    assert findings(world) == found


@pytest.mark.parametrize("qos, since_s, found", [
    (0, 1.5, []),
    (0, 0.5, ["0 came after 2, of one publisher, topic and QoS"]),
    (1, 1.5, ["0 came after 2, of one publisher, topic and QoS"]),
])
def test_message_lost_with_a_connection_may_come_back_late_at_qos_0_after_a_cut(
    world, flow, inbox, qos, since_s, found
):
    publish(flow, 3)
    inbox.closes()
    come(inbox, 2, qos=qos)
    world.after(1.0, inbox.power_was_cut)
    world.run(2.0)

    come(inbox, 0, qos=qos, since_s=since_s)
    assert findings(world) == found

    come(inbox, 2, qos=qos, dup=qos > 0, since_s=since_s)
    come(inbox, 1, qos=qos, since_s=since_s)
    assert findings(world)[-1] == "1 came after 2, of one publisher, topic and QoS"


@pytest.mark.parametrize("is_set_back, found", [
    (True, []), (False, ["0 came after 1, of one publisher, topic and QoS"])])
def test_message_that_had_expired_may_come_back_late_after_a_cut_if_the_clock_was_set(
    world, flow, inbox, is_set_back, found
):
    flow.publish_to("f0/a", 1, expiry_s=60)
    flow.publish_to("f0/a", 1)
    come(inbox, 1)
    world.after(1.0, inbox.power_was_cut)
    world.run(2.0)
    CLOCK.jumps += is_set_back

    come(inbox, 0, since_s=1.5)

    assert findings(world) == found


@pytest.mark.parametrize("is_full", [False, True])
def test_message_that_the_disk_may_have_refused_may_be_late_if_it_is_sent_again(world, flow, inbox, is_full):
    flow.publish_to("f0/a", 1)
    if is_full:
        flow.disk_is_full(True)
    else:
        flow.disk_is_ill(True)
    publish(flow)
    flow.disk_is_full(False)
    flow.process_ended()

    come(inbox, 1)
    flow.sends_again(0)
    come(inbox, 0)
    assert findings(world) == []

    publish(flow, 2)
    come(inbox, 3)
    flow.sends_again(2)
    come(inbox, 2)
    assert findings(world) == ["2 came after 3, of one publisher, topic and QoS"]


def test_message_at_qos_0_that_comes_twice_is_found(world, flow, inbox):
    publish(flow, qos=0)

    come(inbox, 0, 0)

    assert findings(world) == ["0 came twice at QoS 0"]


def test_message_that_came_at_qos_1_may_come_again_at_qos_0_once(world, flow, inbox):
    publish(flow)
    inbox.closes()
    come(inbox, 0)

    come(inbox, 0, qos=0)
    assert findings(world) == []
    come(inbox, 0, qos=0)

    assert findings(world) == ["0 came twice at QoS 0"]


def test_message_at_qos_1_that_comes_again_without_dup_is_found(world, flow, inbox):
    publish(flow, 2)
    come(inbox, 0, 1)

    come(inbox, 0, dup=True)
    come(inbox, 1)

    assert findings(world) == ["1 came again without DUP"]


def test_message_may_come_again_without_dup_after_a_cut_that_its_octets_came_behind(world, flow, inbox):
    publish(flow, 2)
    world.after(1.0, inbox.power_was_cut)
    world.run(2.0)
    come(inbox, 0, 1)

    come(inbox, 0, since_s=1.5)
    come(inbox, 0, since_s=1.6)

    assert findings(world) == ["0 came again without DUP"]


def test_message_that_its_publisher_has_sent_again_may_come_twice(world, flow, inbox):
    publish(flow)
    flow.sends_again(0)

    come(inbox, 0, 0)

    assert findings(world) == []


def test_message_that_was_published_after_unsuback_is_found(world, flow, inbox):
    publish(flow)
    inbox.closes()
    inbox.unsubscribed()
    publish(flow)

    come(inbox, 0, 1)

    assert findings(world) == ["1 came, published after the subscription had ended"]


def test_delivery_at_another_qos_or_by_other_subscriptions_is_found(world, flow, inbox):
    publish(flow, 2, qos=2)

    come(inbox, 0, qos=1)
    come(inbox, 1, identifiers=[3])

    assert findings(world) == ["0 came at QoS 1 in place of 2", "1 came by [3] in place of [3, 5]"]


def test_message_that_has_expired_is_found(world, flow, inbox):
    publish(flow, 2, expiry_s=1)
    world.run(10.0)

    come(inbox, 0, since_s=2.0)
    come(inbox, 1, since_s=4.0)

    assert findings(world) == ["1 came, which had expired after 1 s"]


def test_time_that_is_left_of_a_message_is_found_where_it_is_wrong(world, flow, inbox):
    publish(flow, 3, expiry_s=60)
    world.run(20.0)

    come(inbox, 0, left_s=40, since_s=19.0)
    come(inbox, 1, left_s=60, since_s=19.0)
    come(inbox, 2, left_s=10, since_s=19.0)

    assert findings(world) == [
        "1 came with 60 s left, not 39.0 to 42.0", "2 came with 10 s left, not 39.0 to 42.0"]


def test_message_that_is_left_out_before_it_expires_is_found(world, flow, inbox):
    publish(flow, expiry_s=60)
    publish(flow)

    come(inbox, 1)

    assert findings(world) == ["1 came before 0, which has not expired"]


def test_message_that_a_power_cut_took_before_its_answer_may_come_behind_the_next(world, flow, inbox):
    """Seed 10208: its record was torn, and that of the next one was on the disk."""
    flow.publish_to("f0/a", 1, 60)
    flow.publish_to("f0/a", 1, 60)
    flow.power_was_cut()
    for number in range(2):
        flow.sends_again(number)
        flow.accept(number)

    come(inbox, 1)
    come(inbox, 0)

    assert findings(world) == []


def test_message_that_has_expired_may_be_lost(world, flow, inbox):
    publish(flow, expiry_s=1)
    publish(flow)
    world.run(2.0)
    come(inbox, 1)

    inbox.check_complete()

    assert findings(world) == []


@pytest.fixture
def group(world, flow):
    return subscribed(Group(world, "g", flow, [Wish("$share/g/f0/#", 2)]))


def test_message_at_qos_2_that_comes_to_two_members_is_found(world, flow, group):
    publish(flow, qos=2)

    come(group, 0, 0, identifiers=())

    assert findings(world) == ["0 came twice at QoS 2"]


@pytest.mark.parametrize("qos, most_begun, is_lost", [(1, 3, True), (2, 1, True), (2, 3, False)])
def test_messages_that_are_lost_with_a_member_are_found_but_for_those_begun(
    world, flow, group, qos, most_begun, is_lost
):
    publish(flow, 3, qos=qos)
    group.session_ended(most_begun)

    group.check_complete()

    assert bool(findings(world)) is is_lost


def test_what_a_session_has_that_the_disk_may_have_closed_may_go_with_it(world, flow, group):
    flow.disk_is_full(True)
    flow.process_ended()
    publish(flow)
    group.session_ended()
    flow.disk_is_full(False)
    group.check_complete()
    assert findings(world) == []

    flow.process_ended()
    publish(flow)
    group.session_ended()
    group.check_complete()
    assert len(findings(world)) == 1


def test_nothing_is_owed_to_a_session_that_may_be_a_new_one(world, flow, inbox):
    publish(flow)
    inbox.may_be_new()
    publish(flow)
    inbox.check_complete()
    assert findings(world) == []

    inbox.subscribed()
    publish(flow)
    inbox.check_complete()
    assert len(findings(world)) == 1


class NoNetwork:
    """Nobody listens there."""

    def connect(self, port, hear):
        return None


@pytest.mark.parametrize("keeps_s, tries, away_s, is_found", [
    (3, 1, 5.0, False), (3, 0, 5.0, True), (3, 1, 1.0, True), (FOR_EVER, 1, 5.0, True)])
def test_session_that_a_connect_without_an_answer_may_have_made_owes_nothing(
    world, flow, inbox, keeps_s, tries, away_s, is_found
):
    """Seed 7222: it was refused for a disk that is full, after the session before had expired."""
    client = FlowSubscriber(world, NoNetwork(), "s", inbox)
    client._keeps_s, client.keeps_session, client.begins_anew = keeps_s, True, lambda: False
    world.run(1.0)
    client.begin()
    client.check_session(False)
    client._is_kept = client._is_ours = True
    publish(flow)
    client.gone()

    world.run(1.0 + away_s)
    for _ in range(tries):
        client.begin()
        client.gone()
    world.run(1.5 + away_s)
    client.begin()
    client.check_session(True)

    inbox.check_complete()
    assert bool(findings(world)) is client._is_ours is is_found


def test_message_of_before_the_subscription_may_be_late_if_it_is_sent_again(world, flow, inbox):
    flow.publish_to("f0/a", 1)
    inbox.subscribed()
    publish(flow, 3)
    come(inbox, 1)
    flow.sends_again(0)
    come(inbox, 0)
    assert findings(world) == []

    come(inbox, 3)
    flow.sends_again(2)
    come(inbox, 2)
    assert "2 came after 3, of one publisher, topic and QoS" in findings(world)
