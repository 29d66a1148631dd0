"""Which listeners open for which settings, and what a change of settings does to them."""
import os
import stat

import pytest
from gevent import socket

from gomq_py.config import control
from gomq_py.config.settings import Settings
from gomq_py.ctl.session import make_session
from gomq_py.doors import AMQP, MQTT, Doors, is_wanted
from gomq_py.net.listener import BindError, bind_tcp
from gomq_py.net.tls import TLSError
from tests.support import certificates

OFF = {
    "control_unix_path": "", "amqp_port": -1, "amqps_port": -1, "mqtt_port": -1, "mqtts_port": -1,
    "http_port": -1, "https_port": -1, "metrics_http_port": -1,
}


class SideDoor:
    """What the launcher would make of a socket for the management side."""

    address = "nowhere"

    def __init__(self, protocol, listening, tls):
        self.protocol, self.listening, self.tls = protocol, listening, tls

    def start(self):
        pass

    def close(self):
        self.listening.close()


@pytest.fixture
def open_doors():
    """A function from settings to open doors; all are closed at the end."""
    made = []

    def open_(inherited=(), **settings):
        made.append(Doors(
            Settings(**{**OFF, **settings}),
            {
                AMQP: (lambda connection, address: None, None, True),
                MQTT: (lambda connection, address: None, None, False),
            },
            SideDoor, None, inherited,
        ))
        made[-1].open()
        return made[-1]

    yield open_
    for doors in made:
        doors.close()


@pytest.fixture
def tls(tmp_path):
    """Settings with a certificate."""
    files = certificates.make(tmp_path / "files")
    return {"tls_cert": str(files.certificate), "tls_key": str(files.key)}


def protocols(doors):
    return [listener.protocol for listener in doors.listeners]


def test_ports_of_minus_one_are_closed(open_doors):
    assert protocols(open_doors()) == []


def test_every_port_that_is_wanted_is_open(open_doors, tmp_path, tls):
    doors = open_doors(
        **dict.fromkeys(OFF, 0), amqp_unix_path=str(tmp_path / "amqp.sock"),
        mqtt_unix_path=str(tmp_path / "mqtt.sock"), mqtt_unix_mode=0o600, **tls,
    )

    assert protocols(doors) == [
        "amqp", "amqps", "amqp", "mqtt", "mqtts", "mqtt", "http", "https", "metrics"
    ]
    assert [listener.protocol for listener in doors.listeners[6:] if listener.tls is not None] == ["https"]
    assert stat.S_IMODE(os.stat(tmp_path / "mqtt.sock").st_mode) == 0o600


def test_tls_ports_need_a_certificate(open_doors):
    assert protocols(open_doors(**dict.fromkeys(OFF, 0))) == ["amqp", "mqtt", "http", "metrics"]


@pytest.mark.parametrize("option", ["http_port", "mqtt_port", "mqtts_port"])
def test_port_that_is_taken_closes_a_side_door_or_mqtts_only_where_nobody_asked_for_it(
    open_doors, caplog, option, tls
):
    with bind_tcp("127.0.0.1", 0, 1) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BindError):
            open_doors(**{option: port}, **tls)
        settings = Settings(**OFF, **tls)
        setattr(settings, option, port)
        settings.origins.pop(option)
        doors = Doors(settings, {MQTT: (lambda connection, address: None, None)}, SideDoor, None)
        doors.open()

    assert protocols(doors) == []
    assert f"going on without {option.replace('_', ' ')}" in caplog.text


@pytest.mark.parametrize("wanted, settings", [
    (False, {}), (False, {"mqtts_port": 0}), (True, {"mqtt_port": 0}),
    (True, {"mqtts_port": 0, "tls_cert": "x.pem"}), (True, {"mqtt_unix_path": "mqtt.sock"}),
])
def test_protocol_is_wanted_where_one_of_its_doors_is(wanted, settings):
    assert is_wanted(MQTT, Settings(**{**OFF, **settings})) is wanted


@pytest.mark.parametrize("wanted, name", [(False, "amqp"), (True, "mqtt"), (True, "mqtts")])
def test_protocol_is_wanted_where_a_socket_was_handed_over_for_it(wanted, name):
    assert is_wanted(MQTT, Settings(**OFF), [(name, None)]) is wanted


def test_mqtts_reads_its_certificates_anew(open_doors, tls):
    doors = open_doors(mqtts_port=0, **tls)
    before = doors._handshakers["mqtts"]._contexts
    changed = Settings(**{**OFF, "mqtts_port": 0, **tls})

    doors.apply(changed, doors.prepare(changed))

    assert doors._handshakers["mqtts"]._contexts is not before


def test_socket_that_was_handed_over_replaces_the_port(open_doors):
    handed_over = bind_tcp("127.0.0.1", 0, 1)
    doors = open_doors([("amqp", handed_over)], amqp_port=0)

    assert [listener.port for listener in doors.listeners] == [handed_over.getsockname()[1]]


def test_mistaken_certificates_leave_everything_as_it_is(open_doors, tls, tmp_path):
    doors = open_doors(amqps_port=0, **tls)
    handshaker = doors._handshakers["amqps"]
    before = handshaker._contexts

    with pytest.raises(TLSError):
        doors.prepare(Settings(**{**OFF, **tls, "tls_key": str(tmp_path / "absent.pem")}))

    assert handshaker._contexts is before


def test_change_reaches_open_listeners(open_doors, tls):
    doors = open_doors(amqp_port=0, amqps_port=0, **tls)
    before = doors._handshakers["amqps"]._contexts
    changed = Settings(**{
        **OFF, **tls, "tcp_proxy_protocol": 2, "tcp_keepalive": None, "tcp_nodelay": True,
        "tcp_recv_buffer_size": 65536,
    })

    doors.apply(changed, doors.prepare(changed))

    assert doors._handshakers["amqps"]._contexts is not before
    ours = socket.create_connection(("127.0.0.1", doors.listeners[0].port))
    try:
        doors.options.apply(ours)
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= 65536
        assert not ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    finally:
        ours.close()


def test_section_inherits_what_it_does_not_say(tls, tmp_path):
    from gomq_py.net.tls import options_of as options
    settings = Settings(
        **tls, tls_ciphers="ECDHE+AESGCM", tls_min_version="1.3", tls_ca_cert="main.pem", tls_verify_peer=True
    )

    assert options(settings, {}, "amqp") == options(settings)
    section = {"tls_cert": "other.pem", "amqp_tls_min_version": "1.2", "http_tls_verify_peer": False}
    amqp, http = options(settings, section, "amqp"), options(settings, section, "http")
    assert (amqp.certificate, amqp.key, amqp.ciphers) == ("other.pem", "", "ECDHE+AESGCM")
    assert (amqp.least_version, http.least_version) == ("1.2", "1.3")
    assert (amqp.verify_peer, http.verify_peer, amqp.authorities) == (True, False, "main.pem")


def test_control_socket_lies_where_ctl_looks_when_nobody_names_a_path(open_doors, tmp_path, monkeypatch):
    monkeypatch.setattr(control, "SYSTEM_FOLDER", str(tmp_path / "absent" / "gomq-py"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("GOMQ_DATADIR", str(tmp_path))

    (door,) = open_doors(control_unix_path="auto", http_port=0, data_dir=str(tmp_path)).listeners[1:]

    assert door.protocol == "control"
    assert door.listening.getsockname() == str(tmp_path / "ctl.sock") == make_session().api.unix_path
    assert stat.S_IMODE(os.stat(tmp_path / "ctl.sock").st_mode) == 0o600


def test_control_socket_in_a_folder_of_everybody_is_a_warning(open_doors, tmp_path, caplog):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)

    open_doors(control_unix_path=str(tmp_path / "shared" / "x.sock"))

    assert "in a folder that other users write to" in caplog.text


def test_clients_of_other_nodes_find_the_tcp_listeners_that_ask_for_a_login(open_doors, tmp_path, tls):
    doors = open_doors(
        **dict.fromkeys(OFF, 0) | {"mqtt_port": -1, "control_unix_path": ""},
        mqtt_unix_path=str(tmp_path / "mqtt.sock"), **tls)

    assert [doors.find(name).port for name in ("amqp", "amqps")] == [
        listener.port for listener in doors.listeners[:2]]
    assert [doors.find(name) for name in ("mqtt", "metrics", "control", "cluster", "")] == [None] * 5


def test_follower_passes_clients_on_with_their_tls(tls):
    """Which of the leader's listeners a client is for is known by the follower's."""
    asked = []
    settings = Settings(**{**OFF, **dict.fromkeys(OFF, 0), "control_unix_path": "", **tls})
    doors = Doors(settings, {AMQP: (None, None, False)}, SideDoor, None, (), asked.append)
    try:
        doors.open()
        assert protocols(doors) == ["amqp", "amqps", "http", "https", "metrics"]
        assert asked == ["amqp", "amqps", "https"]
        assert all(doors.listeners[index]._handshake is None for index in (0, 1, 3))
    finally:
        doors.close()


def test_suspended_ports_refuse_clients_until_they_are_open_again(open_doors, tmp_path, tls):
    doors = open_doors(
        amqp_port=0, amqps_port=0, mqtt_port=0, http_port=0, amqp_unix_path=str(tmp_path / "amqp"), **tls)
    before = sorted(protocols(doors))
    port = doors.find(AMQP).port

    for _ in range(2):
        doors.suspend()
        doors.suspend()

        assert sorted(protocols(doors)) == ["amqp", "http"]  # its unix socket, and the management API
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with bind_tcp("127.0.0.1", port, 1), pytest.raises(BindError):
            doors.resume()
        assert sorted([*protocols(doors), "amqp"]) == before  # the others are open
        doors.resume()
        doors.resume()

        assert sorted(protocols(doors)) == before and doors.find(AMQP).port == port
        socket.create_connection(("127.0.0.1", port)).close()
