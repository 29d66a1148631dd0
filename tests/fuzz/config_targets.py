"""Fuzz targets of what an operator writes: the INI file, flags, environment variables,
definitions as JSON.
"""
import contextlib
import io
import json
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from gomq_py.broker.topology import definitions
from gomq_py.broker.topology.definitions import DefinitionsError, Importer
from gomq_py.config import sources
from gomq_py.config.settings import OPTIONS, Settings
from gomq_py.config.sources import ConfigError
from tests.fuzz.target import Target, errors_logged
from tests.support.node import Node

ROOT = Path(__file__).resolve().parents[2]


@cache
def folder():
    """A folder of this process, on a disk that is none where there is one."""
    import atexit
    path = tempfile.mkdtemp(prefix="gomq-fuzz.", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    atexit.register(shutil.rmtree, path, True)
    return Path(path)


def _check(settings):
    """Every value is one its option could have been given as text."""
    for option in OPTIONS:
        value = getattr(settings, option.attribute)
        if option.attribute in settings.origins and not option.kind.secret:  # "***" is shown of a secret
            assert option.kind.parse(option.kind.show(value)) == value, (option.key, value)


def _one_line(error):
    text = str(error)
    assert text and len(text.splitlines()) == 1, repr(text)


# the INI file

def run_ini(data):
    """A file is taken or refused with one line that names it."""
    path = folder() / "gomq.ini"
    path.write_bytes(data)
    settings = Settings()
    try:
        warnings = sources.read_file(settings, path)
    except ConfigError as error:
        _one_line(error)
        assert str(path) in str(error)
        return
    for warning in warnings + sources.pending_warnings(settings):
        assert len(warning.splitlines()) == 1, repr(warning)
    _check(settings)


def sample_ini():
    yield (ROOT / "etc" / "gomq.ini").read_bytes().replace(b"\n;", b"\n")[:4000]
    for section in dict.fromkeys(option.section for option in OPTIONS):
        lines = [
            f"{option.key} = {option.kind.show(option.default)}"
            for option in OPTIONS if option.section == section
        ]
        yield "\n".join((f"[{section}]", *lines)).encode()
    yield b"[sni:example.com]\ntls_cert = a\nhttp_tls_key = b\n[http]\nport = 1\n; comment\n# too\nx"
    yield b"[amqp\n"
    yield b"data_dir = /tmp\n[main]\ntcp_keepalive = 1:2:3\nlog_level = Warning\n[amqp]\ntls_cert=x\n"


# flags and environment

@cache
def _parser():
    return sources.flag_parser()


def run_flags(data):
    """A command line is taken or refused with one line.

    ``--help``, also as ``-dh``, ends it with a page, as it should.
    """
    words = data.decode("utf-8", "surrogateescape").split("\0")
    settings = Settings()
    page = io.StringIO()
    try:
        with contextlib.redirect_stdout(page):
            arguments = _parser().parse_args(words)
        sources._take_flags(settings, arguments)
    except ConfigError as error:
        assert str(error)
        return
    except SystemExit as left:
        assert left.code == 0 and page.getvalue().startswith("usage:")
        return
    _check(settings)


def sample_flags():
    yield b"--data-dir\0/tmp/x\0--port=0\0-d"
    for option in OPTIONS:
        for flag in option.flags[:1]:
            yield f"{flag}={option.kind.show(option.default)}".encode()
    yield b"--bind\0::\0--no-sync\0-l\0debug"
    yield b"--sync\0maybe"
    yield b"positional"
    yield b"--help"
    yield b"-dh"


def run_environment(data):
    """NAME=value pairs are taken or refused with one line."""
    pairs = (pair.partition("=") for pair in data.decode("utf-8", "surrogateescape").split("\0"))
    environment = {name: value for name, _, value in pairs if name}
    settings = Settings()
    try:
        sources._take_environment(settings, environment)
        sources.config_path(None, {name: value for name, value in environment.items() if "\0" not in value})
    except ConfigError as error:
        assert str(error)
        return
    _check(settings)


def sample_environment():
    for option in OPTIONS:
        for name in option.environment:
            yield f"GOMQ_{name}={option.kind.show(option.default)}".encode()
    yield b"LAVINMQ_AMQP_PORT=1\0GOMQ_AMQP_PORT=2\0STATE_DIRECTORY=/x\0GOMQ_CONFIGURATION_DIRECTORY=/nowhere"


# definitions

def run_definitions(data):
    """A file is imported or refused; what it set up is exported, and imports into another broker as it is."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        return
    with errors_logged() as errors:
        exported = _imported(parsed, "one")
        if exported is not None:
            again = _imported(json.loads(json.dumps(exported)), "two")
            assert _sorted(again) == _sorted(exported)
    assert not errors, errors


def _imported(parsed, name):
    root = folder() / name
    node = Node(root, default_user="")
    try:
        report = Importer(node.broker).run(parsed)
        assert all(isinstance(problem, str) for problem in report.problems)
        exported = definitions.exported(node.broker)
        json.dumps(exported)
        return exported
    except DefinitionsError as error:
        assert str(error)
        return None
    finally:
        node.stop()
        shutil.rmtree(root)


def _sorted(exported):
    """What two brokers with the same definitions export alike: not the name of a cluster that nobody named,
    which each makes up.
    """
    given = [entry["value"] for entry in exported["global_parameters"] if entry["name"] == "cluster_name"]
    origin = exported["original_cluster_name"]
    return {
        **{
            key: sorted(map(repr, value)) if isinstance(value, list) else value
            for key, value in exported.items()
        },
        "original_cluster_name": origin if origin in given else bool(origin),
    }


def sample_definitions():
    every = {
        "users": [
            {"name": "u", "password_hash": "", "tags": "management"},
            {"name": "v", "password_hash": "", "hashing_algorithm": "md5", "tags": []},
        ],
        "vhosts": [{"name": "/"}, {"name": "v"}],
        "permissions": [{"user": "u", "vhost": "/", "configure": ".*", "write": "^a", "read": ""}],
        "parameters": [
            {"component": "vhost-limits", "vhost": "/", "name": "limits", "value": {"max-queues": 5}}
        ],
        "global_parameters": [{"name": "cluster_name", "value": "x"}],
        "policies": [
            {
                "vhost": "/", "name": "p", "pattern": "^q", "apply-to": "queues",
                "definition": {"max-length": 5}, "priority": 1,
            },
        ],
        "queues": [
            {
                "name": "q", "vhost": "/", "durable": True, "auto_delete": False,
                "arguments": {"x-max-length": 5},
            },
        ],
        "exchanges": [
            {
                "name": "x", "vhost": "/", "type": "topic", "durable": True, "auto_delete": False,
                "internal": False, "arguments": {},
            },
        ],
        "bindings": [
            {
                "source": "x", "vhost": "/", "destination": "q", "destination_type": "queue",
                "routing_key": "#", "arguments": {"a": 1},
            },
        ],
        "topic_permissions": [{}],
    }
    yield json.dumps(every).encode()
    for key, entries in every.items():
        alone = {"vhosts": [{"name": "/"}], key: entries}
        yield json.dumps(alone).encode()
    yield b"[]"
    yield b'{"queues": {}}'
    yield (
        b'{"vhosts": [{"name": "/"}], "queues": [{"name": "q", "vhost": "/", "durable": true, "arguments": '
        b'{"x-message-ttl": 1.5, "a": [null]}}]}'
    )


FLAG_WORDS = tuple(flag.encode() for option in OPTIONS for flag in option.flags)
ENVIRONMENT_WORDS = tuple(b"GOMQ_" + name.encode() for option in OPTIONS for name in option.environment)
DEFINITION_WORDS = (
    b'"name"', b'"vhost"', b'"arguments"', b'"durable"', b"true", b"null", b'"x-max-length"', b'"definition"',
    b'"value"', b'"queues"', b'"policies"',
)

TARGETS = {
    "ini": Target(run_ini, sample_ini, 4096, tuple(option.key.encode() for option in OPTIONS)),
    "flags": Target(run_flags, sample_flags, 512, FLAG_WORDS),
    "environment": Target(run_environment, sample_environment, 512, ENVIRONMENT_WORDS),
    "definitions": Target(run_definitions, sample_definitions, 4096, DEFINITION_WORDS),
}
