"""Requests made up from the description by schemathesis: whatever is asked, nothing is a fault of the broker's and nothing hangs."""
import os

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from tests.management.description import described
from tests.support.broker_process import BrokerProcess

# Examples per operation; `make fuzz-http` asks for more.
EXAMPLES = int(os.environ.get("GOMQ_FUZZ_EXAMPLES", "1"))

schema = schemathesis.openapi.from_dict(described())


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    """A broker of its own, and the base URL of its API: the control socket's rights over TCP, so that logins cannot be lost on the way."""
    with BrokerProcess(tmp_path_factory.mktemp("fuzzed") / "data", http_port=0) as process:
        yield process, f"http://127.0.0.1:{process.ports['http']}"


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate),
          suppress_health_check=list(HealthCheck))
def test_no_request_is_a_fault_of_the_brokers(case, fuzzed):
    process, base = fuzzed

    answer = case.call(base_url=base, auth=("guest", "guest"), timeout=10)

    assert answer.status_code < 500 or answer.status_code == 503 and "health" in case.operation.path, answer.text
    assert process.is_running
