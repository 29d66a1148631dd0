"""Requests made up from the description by schemathesis: whatever is asked, nothing is a fault of the
broker's and nothing hangs.
"""
import os

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source

from tests.management.description import described
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import in_time

# Examples per operation; `make fuzz-http` asks for more.
EXAMPLES = int(os.environ.get("GOMQ_FUZZ_EXAMPLES", "1"))

schema = schemathesis.openapi.from_dict(described())
OPERATIONS = {found.ok().label: found.ok() for found in schema.get_all_operations()}
FEEDBACK = FeedbackSources(constants_value_source=make_constants_value_source(schema))

VHOST = "fuzz"
# What is there for the requests to hit; made anew for each operation, because some delete it.
THINGS = {
    "vhosts": [{"name": VHOST}], "users": [{"name": "fuzz", "tags": ["management"], "password": "fuzz"}],
    "permissions": [
        {"user": user, "vhost": VHOST, "configure": ".*", "write": ".*", "read": ".*"}
        for user in ("guest", "fuzz")
    ],
    "exchanges": [{"name": "thing", "vhost": VHOST, "type": "topic"}],
    "queues": [
        {"name": "thing", "vhost": VHOST},
        {"name": "stream", "vhost": VHOST, "arguments": {"x-queue-type": "stream"}},
    ],
    "bindings": [
        {
            "source": "thing", "vhost": VHOST, "destination": name, "destination_type": "queue",
            "routing_key": "#",
        }
        for name in ("thing", "stream")
    ],
    "policies": [{"name": "thing", "vhost": VHOST, "pattern": "^nothing$", "definition": {"max-length": 5}}],
    "parameters": [{"component": "thing", "name": "thing", "vhost": VHOST, "value": 1}],
    "global_parameters": [{"name": "thing", "value": 1}],
}
# Names in paths that are of these things in every other request.
NAMES = {
    "vhost": VHOST, "user": "fuzz", "source": "thing", "destination": "thing", "component": "thing",
    "kind": "q", "number": 1,
}


@schema.hook
def map_path_parameters(context, path_parameters):
    """Names that are there, for every other value that was made up:
    of what is not there nothing but 404 is to be heard.
    """
    path = context.operation.path
    known = {
        **NAMES,
        "name": (
            "stream" if path.startswith("/api/streams") else VHOST
            if path.startswith(("/api/vhosts", "/api/users")) else "thing"
        ),
    }
    return {
        name: known[name] if name in known and len(str(value)) % 2 == 0 else value
        for name, value in (path_parameters or {}).items()
    }


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    """A broker of its own, and the base URL of its API: the control socket's rights over TCP, so that logins
    cannot be lost on the way.
    """
    with BrokerProcess(tmp_path_factory.mktemp("fuzzed") / "data", http_port=0) as process:
        yield process, f"http://127.0.0.1:{process.ports['http']}"


@pytest.fixture
def things(fuzzed):
    """THINGS are there, and a message in each queue."""
    base = fuzzed[1]
    requests.post(
        f"{base}/api/definitions", json=THINGS, auth=("guest", "guest"), timeout=in_time(60)
    ).raise_for_status()
    requests.post(
        f"{base}/api/exchanges/{VHOST}/thing/publish", auth=("guest", "guest"), timeout=in_time(60),
        json={
            "properties": {"headers": {"a": 1}}, "routing_key": "k", "payload": "x",
            "payload_encoding": "string"},
    ).raise_for_status()


def may_be_unavailable(case):
    """Health checks that fail, and the status of a queue that is no quorum queue, are 503 as in RabbitMQ."""
    return "health" in case.operation.path or case.operation.path.startswith("/api/queues/quorum/")


@pytest.mark.parametrize("label", OPERATIONS)
def test_no_request_is_a_fault_of_the_brokers(label, fuzzed, things):
    """Its requests are made up here: ``schema.parametrize`` makes up those of all operations while tests are
    collected, which each process of a run would do.
    """
    process, base = fuzzed

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck),
    )
    def ask(case):
        answer = case.call(base_url=base, auth=("guest", "guest"), timeout=in_time(60))

        assert answer.status_code < 500 or answer.status_code == 503 and may_be_unavailable(case), (
            answer.text
        )
        assert process.is_running

    build_operation_test(
        config=schema.config, operation=OPERATIONS[label], test_func=ask, given_kwargs={},
        feedback=FEEDBACK,
    )()
