"""The transport http against a live broker: who may read, answers that end early,
brokers that go and come back.
"""
import json
import socket
import threading

import pytest

from gomq_py.auth.passwords import hash_password
from gomq_py.content.properties import Properties
from gomq_py.spark.errors import NoStream, OptionError, Refused, Unreachable
from gomq_py.spark.http_transport import HttpTransport, SegmentGone
from gomq_py.spark.offsets import Position
from gomq_py.spark.options import Credentials, Options, credentials
from gomq_py.spark.planning import Planner, end_position
from gomq_py.spark.reading import PieceReader
from tests.spark.conftest import allow
from tests.spark.sessions import PATIENT
from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def letters(broker):
    """The name of a stream with the messages 0 to 99."""
    broker.stream("letters", [b"%d" % number for number in range(100)])
    return "letters"


def transport(url, user="guest", password="guest", **given):
    options = {"subscribe": "letters", "url": url, "retrySeconds": "0", "timeoutSeconds": PATIENT, **given}
    return HttpTransport(Options(options), Credentials(user, password))


def whole(door, name="letters"):
    shape = door.describe(name)
    part, = shape.segments
    return b"".join(door.octets(name, shape.epoch, part.number, 0, part.bytes))


def test_a_stream_is_described_and_its_octets_come_in_order(broker, letters):
    door = transport(broker.url)
    shape = door.describe(letters)

    assert (shape.first_offset, shape.end_offset, len(shape.segments)) == (0, 100, 1)
    octets = whole(door)
    assert octets.startswith(b"GOMQMSGS") and len(octets) == shape.segments[0].bytes
    assert b"".join(door.octets(letters, shape.epoch, 1, 64, 100)) == octets[64:164]
    assert letters in door.names()
    assert door.offset_for_timestamp(letters, 0) == 0


def test_what_is_not_there_is_said(broker, letters):
    door = transport(broker.url)
    shape = door.describe(letters)

    with pytest.raises(NoStream, match="no stream 'nowhere' in vhost '/' at http"):
        door.describe("nowhere")
    with pytest.raises(SegmentGone):
        list(door.octets(letters, shape.epoch, 99, 0, 10))
    with pytest.raises(SegmentGone, match="another epoch"):
        list(door.octets(letters, "0" * 32, 1, 0, 10))


def test_wrong_credentials_are_said_with_where_to_put_them(broker, letters):
    with pytest.raises(Refused, match="does not let user 'guest' in .Login failed.: set GOMQ_USER"):
        transport(broker.url, password="wrong").describe(letters)


def test_who_names_no_credentials_reads_as_guest_and_is_told_where_to_put_others(tmp_path, broker, letters):
    options = Options({"url": broker.url, "subscribe": letters, "retrySeconds": "0"})
    assert HttpTransport(options, credentials(options, {})).describe(letters).end_offset == 100

    config = tmp_path / "gomq.ini"
    config.write_text(
        f"[main]\ndefault_user = admin\ndefault_password_hash = {hash_password('secret')}\n")
    with BrokerProcess(tmp_path / "data", config, http_port=0) as without_guest:
        url = f"http://127.0.0.1:{without_guest.ports['http']}"
        options = Options({"url": url, "subscribe": letters, "retrySeconds": "0"})

        with pytest.raises(Refused, match="user 'guest' in .*: set GOMQ_USER and GOMQ_PASSWORD"):
            HttpTransport(options, credentials(options, {})).describe(letters)


def test_a_user_without_read_permission_is_named_with_the_stream(broker, letters):
    allow(broker, "spark", "^other$")

    door = transport(broker.url, "spark", "spark")

    with pytest.raises(Refused, match="user 'spark' may not read stream 'letters' in vhost '/'"):
        door.describe(letters)
    assert door.names() == []


def test_one_of_several_streams_that_may_not_be_read_is_named_or_not_met_by_a_pattern(broker, letters):
    broker.stream("letters-2", [b"x"])
    allow(broker, "half", "^letters$")
    named = {"subscribe": "letters,letters-2", "url": broker.url}
    matched = {"subscribePattern": "letters.*", "url": broker.url}

    with pytest.raises(Refused, match="user 'half' may not read stream 'letters-2'"):
        Planner(Options(named), transport(broker.url, "half", "half")).shapes()
    assert list(Planner(Options(matched), transport(broker.url, "half", "half")).shapes()) == ["letters"]


def test_nobody_there_is_said_with_the_address(letters):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(Unreachable, match=rf"http://127.0.0.1:{port} cannot be reached.*option url"):
        transport(f"http://127.0.0.1:{port}").describe(letters)


class Proxy:
    """A proxy that cuts each answer short behind ``count`` octets, or answers something else altogether."""

    def __init__(self, target, count=None, answer=None):
        self._target, self._count, self._answer = target, count, answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:{}".format(self._listening.getsockname()[1])
        self.cut = 0
        self.asked = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client:
                request = client.recv(65536)
                if not request:
                    continue
                self.asked = request
                if self._answer is not None:
                    client.sendall(self._answer)
                    continue
                with socket.create_connection(self._target) as server:
                    server.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
                    octets = b"".join(iter(lambda: server.recv(65536), b""))
                limit = self._count if b"octet-stream" in octets else len(octets)
                self.cut += limit < len(octets)
                client.sendall(octets[:limit])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listening.close()


def test_answers_that_are_cut_short_are_gone_on_with(broker, letters):
    expected = whole(transport(broker.url))
    with Proxy(broker.child.addresses["http"], 2000) as proxy:
        octets = whole(transport(proxy.url, retrySeconds=PATIENT))

        assert octets == expected
        assert proxy.cut >= 2


def test_answers_that_never_hold_anything_are_an_error(broker, letters):
    with Proxy(broker.child.addresses["http"], 100) as proxy:
        with pytest.raises(Unreachable, match="reading stream 'letters' in vhost '/', segment 1, position 0"):
            whole(transport(proxy.url))


@pytest.mark.parametrize("answer, words", [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "does not answer as a gomq-py does"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "does not answer as a gomq-py does"),
    (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "answers 302"),
    (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "503"),
    (b"nonsense\r\n\r\n", "cannot be reached"),
])
def test_what_is_no_broker_is_said(answer, words):
    with Proxy(None, answer=answer) as proxy:
        with pytest.raises(Unreachable, match=words):
            transport(proxy.url).describe("letters")


def test_a_token_is_sent_in_place_of_a_password_and_never_told(broker, letters):
    with Proxy(broker.child.addresses["http"]) as proxy:
        door = HttpTransport(
            Options({"subscribe": "letters", "url": proxy.url, "retrySeconds": "0"}),
            Credentials("", "", "hush-token"),
        )
        with pytest.raises(Refused, match="does not let the token in") as refused:
            door.describe(letters)

    assert b"\r\nAuthorization: Bearer hush-token\r\n" in proxy.asked
    assert "hush" not in str(refused.value)


def test_a_token_reads_what_its_scopes_allow_as_long_as_it_is_valid(tmp_path):
    """Issued by a server of its own, as OAuth 2 has it; named by the environment or a file."""
    from gomq_py.client.connection import Connection
    from tests.support.token_issuer import TokenIssuer
    config, login = tmp_path / "gomq.ini", tmp_path / "login.json"
    with TokenIssuer() as issuer:
        config.write_text(
            f"[main]\nauth_backends = local, oauth\n"
            f"[oauth]\nissuer = {issuer.url}\nresource_server_id = gomq\n")
        with BrokerProcess(tmp_path / "data", config, http_port=0) as broker:
            with Connection(broker.amqp_url, heartbeat_s=0) as connection:
                channel = connection.channel()
                channel.confirm_select()
                for name in ("letters", "secrets"):
                    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
                    channel.publish("", name, b"for who may", Properties(delivery_mode=2))
                assert channel.wait_for_confirms()
            url = f"http://127.0.0.1:{broker.ports['http']}"

            def read(token, **given):
                options = Options({"url": url, "subscribe": "letters", "retrySeconds": "0", **given})
                door = HttpTransport(options, credentials(options, {"GOMQ_TOKEN": token}))
                planner = Planner(options, door)
                pieces = [
                    piece for name, shape in planner.shapes().items() for piece in planner.pieces(
                        name, shape, Position(shape.epoch, 0), end_position(shape, shape.end_offset))]
                return [
                    row for batch in PieceReader(options, door, ("queue", "body")).batches(pieces)
                    for row in batch.to_pylist()]

            valid = issuer.token(scope="gomq.read:%2F/letters")
            login.write_text(json.dumps({"token": valid}))
            mine = [{"queue": "letters", "body": b"for who may"}]

            assert read(valid) == mine
            assert read("", credentialsFile=str(login)) == mine
            with pytest.raises(Refused, match="the token may not read stream 'secrets'"):
                read(valid, subscribe="letters,secrets")
            for refused in (issuer.token(lifetime_s=-5), issuer.token(aud="x"), valid[:-8]):
                with pytest.raises(Refused, match="does not let the token in .*GOMQ_TOKEN") as said:
                    read(refused)
                assert refused not in str(said.value)


def test_a_broker_that_is_stopped_in_the_middle_is_an_error(tmp_path):
    from gomq_py.testing.brokers import ChildBroker
    from tests.spark.conftest import Reached
    with ChildBroker(tmp_path / "data", http_port=0, sync=True) as child:
        reached = Reached(child)
        reached.stream("letters", [b"x" * 10000] * 2000)
        door = transport(reached.url)
        shape = door.describe("letters")
        part = max(shape.segments, key=lambda one: one.bytes)  # more than sockets hold
        pieces = door.octets("letters", shape.epoch, part.number, 0, part.bytes)
        next(pieces)
        child.kill()

        with pytest.raises(Unreachable, match="cannot be reached, tried for 0 s .*reading stream 'letters'"):
            for _ in pieces:
                pass


def test_a_broker_that_is_restarted_is_waited_for(tmp_path):
    from gomq_py.testing.brokers import ChildBroker
    from tests.spark.conftest import Reached
    with ChildBroker(tmp_path / "data", http_port=0, sync=True) as child:
        reached = Reached(child)
        reached.stream("letters", [b"x" * 100] * 5000)
        door = transport(reached.url, retrySeconds=PATIENT)
        shape = door.describe("letters")
        part = shape.segments[-1]
        pieces = door.octets("letters", shape.epoch, part.number, 0, part.bytes)
        found = [next(pieces)]
        child.kill()
        starter = threading.Thread(target=child.start)
        starter.start()
        found += pieces
        starter.join()

        assert len(b"".join(found)) == part.bytes
        assert door.describe("letters").end_offset == 5000


def test_tls_needs_an_authority_that_is_trusted(tmp_path):
    from gomq_py.testing.brokers import ChildBroker
    from tests.spark.conftest import Reached
    from tests.support import certificates
    files = certificates.make(tmp_path / "certificates")
    with ChildBroker(
        http_port=0, https_port=0, sync=True, tls_cert=str(files.certificate), tls_key=str(files.key)
    ) as child:
        Reached(child).stream("letters", [b"x"])
        url = "https://127.0.0.1:{}".format(child.addresses["https"][1])

        assert transport(url, caFile=str(files.authority)).describe("letters").end_offset == 1
        with pytest.raises(Unreachable, match="is not trusted .*option caFile"):
            transport(url, retrySeconds=PATIENT).describe("letters")
        with pytest.raises(OptionError, match="option caFile: .* holds no certificate"):
            transport(url, caFile="/nowhere.pem").describe("letters")
