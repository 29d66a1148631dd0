"""Which tests run twice: the interpreted run of CI (``-m typed``) takes what has a typed line to compare.

A module that has a ``.pxd`` must answer the same compiled and interpreted. What is left out has no such
module of its own: it reaches typed lines through the broker, whose own tests, at every layer, run both ways.
"""
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Folder or test module -> why the interpreted run leaves it out.
UNTYPED = {
    "tests/clients": "foreign clients meet the wire, and tests/conformance holds that in octets, both ways",
    "tests/conformance/test_compatibility_page.py": "reads a page, and the names of tests",
    "tests/ctl": "click and the management API",
    "tests/e2e": "the command: what it says, signals, configuration, TLS, packages",
    "tests/embedding": "a broker in another program, and the pytest plugin",
    "tests/management": "Flask, JSON and metrics, above the same broker",
    "tests/simulation": "runs the interpreted modules in every run",
    "tests/spark": "what runs in Spark is plain, and a step of its own",
    "tests/unit/auth": "users, rights and passwords are plain",
    "tests/unit/client": "the client is plain, and the codec under it has tests of its own",
    "tests/unit/config": "files, flags and the environment are plain",
    "tests/unit/ctl": "commands are plain",
    "tests/unit/dispatcher": "the task queue is plain, and so is the client under it",
    "tests/unit/http": "the management API is plain",
    "tests/unit/hub/test_admission.py": (
        "what accepts connections is plain, up to the first octet of a protocol"
    ),
    "tests/unit/net/test_client_hello.py": "as test_admission.py",
    "tests/unit/hub/test_lingering_close.py": "as test_admission.py",
    "tests/unit/net/test_listener.py": "as test_admission.py",
    "tests/unit/net/test_proxy_protocol.py": "as test_admission.py",
    "tests/unit/net/test_systemd.py": "as test_admission.py",
    "tests/unit/net/test_tls.py": "as test_admission.py",
    "tests/unit/observability": "logs and counters are plain",
    "tests/unit/pipeline": "commands, plans and payloads are plain",
    "tests/unit/spark": "options, offsets and plans are plain",
    "tests/unit/test_build_info.py": "looks at files",
    "tests/unit/test_check.py": "looks at files",
    "tests/unit/test_doors.py": "which listeners open is plain",
    "tests/unit/test_doors_translate.py": "reads sources",
    "tests/unit/test_layering.py": "reads sources",
    "tests/unit/test_patterns.py": "regular expressions are plain",
    "tests/unit/test_reload.py": "settings are plain",
    "tests/unit/test_requirements.py": "reads setup.cfg",
    "tests/unit/test_tidy.py": "reads sources",
    "tests/unit/test_typed.py": "reads names of files",
    "tests/unit/test_waiting.py": "measures time",
}
# Compiled modules without a test module of their own name -> the typed one that enters them.
ENTERED_BY = {
    "gomq_py.amqp.server.stream_consumer": "tests/conformance/amqp/test_15_streams.py",
    "gomq_py.amqp.wire.delivery": "tests/unit/amqp/server/test_delivery.py",
    "gomq_py.links.confirms": "tests/unit/links/test_relay.py",
    "gomq_py.mqtt.model.interests": "tests/unit/mqtt/server/test_flows_outbound.py",
    "gomq_py.mqtt.model.received": "tests/unit/mqtt/model/test_qos2_records.py",
    "gomq_py.mqtt.model.session_queue": "tests/unit/mqtt/model/test_sessions.py",
    "gomq_py.mqtt.server.publication": "tests/unit/mqtt/server/test_flows_outbound.py",
    "gomq_py.storage.flush.batch": "tests/unit/storage/flush/test_group_commit.py",
    "gomq_py.storage.segments.recovered": "tests/unit/storage/stores/test_recovery.py",
    "gomq_py.storage.stores.browser": "tests/unit/broker/transfer/test_moves.py",
    "gomq_py.storage.stores.groups": "tests/unit/storage/stores/test_group_store.py",
    "gomq_py.storage.stores.stream_cursor": "tests/unit/storage/stores/test_stream_store.py",
}


@cache
def has_types(path):
    """Whether a test module is among those that run compiled and interpreted."""
    return not any(path.is_relative_to(ROOT / untyped) for untyped in UNTYPED)


def own_tests(name):
    """The unit tests of a module: tests/unit/a/test_b.py and test_b_more.py are about gomq_py/a/b.py."""
    _, *folders, module = name.split(".")
    folder = ROOT.joinpath("tests", "unit", *folders)
    return sorted({*folder.glob(f"test_{module}.py"), *folder.glob(f"test_{module}_*.py")})
