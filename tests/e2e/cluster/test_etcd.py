"""The client against etcd itself: killed, stopped, without a majority, compacted, full; logins and TLS."""
import time

import gevent
import pytest
import trustme
from gevent.event import Event

from gomq_py.cluster.core.transactions import (
    CREATE, MOD, Compare, CoordinatorError, Delete, Put, Transaction, Unanswered,
)
from gomq_py.cluster.etcd.client import Etcd, of_settings
from gomq_py.config.settings import Settings
from tests.support import certificates
from tests.support.etcd_process import EtcdProcess, cluster, with_logins
from tests.support.waiting import in_time, wait_until

pytestmark = pytest.mark.needs_program("etcd")

# More than a call takes on a machine with much to do; where a test waits for a limit, it is short.
PATIENT_S = in_time(5)


@pytest.fixture
def etcd(tmp_path):
    with EtcdProcess(tmp_path) as process:
        yield process


@pytest.fixture
def three(tmp_path):
    """A cluster of three servers."""
    with cluster(tmp_path) as servers:
        yield servers


@pytest.fixture
def watching():
    """Begins a watch; returns the list of revisions that its reader has seen."""
    begun = []

    def watch(client):
        woken, seen = Event(), []

        def read():
            while True:
                woken.wait()
                woken.clear()
                try:
                    seen.append(client.read())
                except (CoordinatorError, Unanswered):
                    pass

        begun.append((client.watch(woken.set), gevent.spawn(read)))
        return seen

    yield watch
    for one, reader in begun:
        one.close()
        reader.kill()


def put(key, value, lease=0):
    return Transaction((), (Put(key, value, lease),))


def test_transaction_is_done_only_if_all_compares_hold(shared_etcd, connected):
    client = connected(shared_etcd, prefix="compares", timeout_s=PATIENT_S)
    first = client.transact(Transaction(
        (Compare("leader", CREATE, 0),), (Put("leader", b"me"), Put("isr", b"1"), Delete("nodes/a"))))
    created = first.view.leader.create_revision

    both = (Compare("leader", CREATE, created), Compare("isr", MOD, first.view.in_sync.mod_revision))
    second = client.transact(Transaction(both, (Put("isr", b"2"),)))
    third = client.transact(Transaction(both, (Put("isr", b"3"),)))

    assert (first.is_done, second.is_done, third.is_done) == (True, True, False)
    assert third.view.in_sync.value == b"2" and third.view == client.read()
    assert third.view.leader.create_revision == created


def test_prefixes_do_not_see_each_other(shared_etcd, connected):
    one, other = (connected(shared_etcd, prefix=prefix, timeout_s=PATIENT_S) for prefix in ("one", "one0"))

    one.transact(put("cluster", b"1"))

    assert other.read().cluster is None


def test_lease_ends_with_its_keys_and_wakes_the_watch(shared_etcd, connected, watching):
    client = connected(shared_etcd, prefix="lease", timeout_s=PATIENT_S)
    seen = watching(client)
    lease = client.grant(2)
    client.transact(put("leader", b"me", lease))
    assert client.keep_alive(lease)
    wait_until(lambda: any(view.leader for view in seen), sleep=gevent.sleep)

    wait_until(lambda: seen[-1].leader is None, sleep=gevent.sleep)

    assert not client.keep_alive(lease)
    with pytest.raises(CoordinatorError, match="lease not found"):
        client.transact(put("leader", b"me", lease))
    client.revoke(lease)


def test_no_change_stays_unseen_while_etcd_is_killed_and_started_again(etcd, connected, watching):
    """The client that was not taken lost 89 of 138 changes here, without a word."""
    client = connected(etcd, timeout_s=PATIENT_S)
    seen = watching(client)
    wait_until(lambda: seen, sleep=gevent.sleep)
    for round_ in range(3):
        etcd.kill()
        with pytest.raises((CoordinatorError, Unanswered)):
            client.read()
        etcd.start()
        etcd.wait_until_ready()
        for number in range(5):
            value = b"%d-%d" % (round_, number)
            etcd.put(b"gomq/isr", value)
            wait_until(
                lambda value=value: seen[-1].in_sync and seen[-1].in_sync.value == value, sleep=gevent.sleep)


def test_transaction_that_a_stopped_etcd_has_is_unanswered(etcd, connected):
    """etcd may do it or not when it goes on: it sees the request and the end of its connection at once."""
    client = connected(etcd, timeout_s=in_time(1))
    client.read()

    etcd.stop()
    with pytest.raises(Unanswered):
        client.transact(put("isr", b"late"))
    with pytest.raises(Unanswered):
        client.read()
    etcd.go_on()

    kept = connected(etcd, timeout_s=PATIENT_S).read().in_sync
    assert kept is None or kept.value == b"late"


def test_transaction_while_etcd_is_down_is_not_done(etcd, connected):
    client = connected(etcd, timeout_s=PATIENT_S)
    client.read()

    etcd.kill()
    with pytest.raises(CoordinatorError):
        client.transact(put("isr", b"never"))
    etcd.start()
    etcd.wait_until_ready()

    assert client.read().in_sync is None


def test_compaction_disturbs_neither_calls_nor_watch(etcd, connected, watching):
    client = connected(etcd, timeout_s=PATIENT_S)
    seen = watching(client)
    for value in (b"1", b"2", b"3"):
        client.transact(put("isr", value))

    etcd.compact()
    etcd.put(b"gomq/isr", b"4")

    wait_until(lambda: seen and seen[-1].in_sync and seen[-1].in_sync.value == b"4", sleep=gevent.sleep)


def test_emptied_etcd_is_seen_as_empty(tmp_path, etcd, connected, watching):
    client = connected(etcd, timeout_s=PATIENT_S)
    client.transact(put("cluster", b"1"))
    seen = watching(client)
    wait_until(lambda: seen and seen[-1].cluster, sleep=gevent.sleep)

    etcd.kill()
    etcd.empty()
    etcd.start()

    wait_until(lambda: seen[-1].cluster is None, sleep=gevent.sleep)


def test_full_etcd_leaves_a_transaction_open_and_keeps_leases_alive(tmp_path, connected):
    """etcd may carry a transaction out and answer that it has no space. Leases take none."""
    with EtcdProcess(tmp_path, "--quota-backend-bytes", "1000000", "--unsafe-no-fsync") as etcd:
        client = connected(etcd, timeout_s=PATIENT_S)
        lease = client.grant(60)

        with pytest.raises(Unanswered, match="space exceeded"):
            for number in range(200):
                etcd_key = f"nodes/{number % 8}"
                client.transact(put(etcd_key, b"x" * 20_000))

        assert client.keep_alive(lease)
        assert client.read().nodes


def test_calls_go_on_when_a_server_of_three_dies_or_hangs(three, connected, watching):
    client = connected(*three, timeout_s=PATIENT_S)
    lease = client.grant(60)
    seen = watching(client)
    wait_until(lambda: seen, sleep=gevent.sleep)

    three[0].stop()
    wait_until(lambda: is_answered(lambda: client.keep_alive(lease)), sleep=gevent.sleep)
    three[1].put(b"gomq/isr", b"1")
    wait_until(lambda: seen[-1].in_sync and seen[-1].in_sync.value == b"1", sleep=gevent.sleep)
    three[0].go_on()
    three[1].kill()

    wait_until(lambda: is_done(client, put("isr", b"2")), sleep=gevent.sleep)
    wait_until(lambda: is_answered(lambda: client.keep_alive(lease)), sleep=gevent.sleep)
    wait_until(lambda: seen[-1].in_sync.value == b"2", sleep=gevent.sleep)


def test_server_without_a_majority_does_nothing_and_ends_its_watches(three, connected, watching, caplog):
    """Once it sees no leader it refuses at once; before, nobody knows."""
    client = connected(three[0], timeout_s=in_time(1))
    client.transact(put("isr", b"1"))
    seen = watching(client)
    wait_until(lambda: seen, sleep=gevent.sleep)
    for server in three[1:]:
        server.kill()

    def refuses():
        try:
            client.transact(put("isr", b"2"))
        except Unanswered:
            return False
        except CoordinatorError as error:
            return "no leader" in str(error)
        raise AssertionError("a transaction without a majority")

    wait_until(refuses, sleep=gevent.sleep)
    wait_until(lambda: "etcd's events do not come" in caplog.text, sleep=gevent.sleep)


def is_answered(call):
    """What etcd answers to the call; False while it elects a leader."""
    try:
        return call()
    except (CoordinatorError, Unanswered):
        return False


def is_done(client, transaction):
    return is_answered(lambda: client.transact(transaction).is_done)


def test_login_lasts_over_a_restart_and_changes_of_users(etcd, connected, watching):
    with_logins(etcd)
    client = connected(etcd, user="gomq", password="pw", timeout_s=PATIENT_S)
    seen = watching(client)
    assert client.transact(put("isr", b"1")).is_done
    lease = client.grant(60)

    etcd.kill()  # its tokens are in memory
    etcd.start()
    etcd.wait_until_ready()
    assert client.transact(put("isr", b"2")).is_done
    assert client.keep_alive(lease)
    wait_until(lambda: seen and seen[-1].in_sync.value == b"2", sleep=gevent.sleep)

    for user, password, prefix in (("gomq", "wrong", "gomq"), ("", "", "gomq"), ("gomq", "pw", "other")):
        with pytest.raises(CoordinatorError, match="refuses"):
            connected(etcd, user=user, password=password, prefix=prefix, timeout_s=PATIENT_S).read()


def test_tls_with_a_certificate_of_its_own_and_a_login(tmp_path):
    """As the settings say; without the authority, or a certificate, nothing is sent."""
    authority = trustme.CA()
    server = certificates.make(tmp_path / "server", authority=authority)
    mine = certificates.make_client(tmp_path / "mine", authority, "node-1")
    others = certificates.make(tmp_path / "others")
    with EtcdProcess(tmp_path, tls=server) as etcd:
        def client(authority, certificate="", key=""):
            return of_settings(Settings.checked(
                etcd_endpoints=[etcd.endpoint], etcd_user="gomq", etcd_password="pw",
                etcd_tls_ca_cert=authority, etcd_tls_cert=certificate, etcd_tls_key=key), PATIENT_S)

        with_logins(etcd)
        good = client(mine.authority, mine.certificate, mine.key)
        assert good.transact(put("isr", b"1")).is_done
        for _ in range(3):
            assert good.read().in_sync.value == b"1"
        woken = []
        watch = good.watch(lambda: woken.append(1))
        wait_until(lambda: woken, sleep=gevent.sleep)
        watch.close()
        good.close()

        for wrong, setting in (
            (client(others.authority, mine.certificate, mine.key), "etcd_tls_ca_cert"),
            (client(mine.authority), "etcd_tls_cert"), (client(""), "etcd_tls_ca_cert"),
            (client(mine.authority, others.certificate, others.key), "etcd_tls_cert"),
        ):
            with pytest.raises((CoordinatorError, Unanswered), match=f"see {setting} of"):
                wrong.read()
            wrong.close()


def test_keepalive_takes_little_time(shared_etcd, connected):
    """A second of keepalives at the default lease takes the hub less than 1 % of a core."""
    client = connected(shared_etcd, prefix="speed", timeout_s=PATIENT_S)
    lease = client.grant(60)
    client.keep_alive(lease)

    began_s = time.thread_time()
    for _ in range(50):
        assert client.keep_alive(lease)

    assert (time.thread_time() - began_s) / 50 < in_time(0.005)


def test_closed_client_leaves_no_connection(shared_etcd):
    client = Etcd([shared_etcd.endpoint], "closed", timeout_s=PATIENT_S)
    client.read()

    client.close()

    with pytest.raises(CoordinatorError):
        client.read()
