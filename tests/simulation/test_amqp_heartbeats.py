"""The judge of heartbeats: each promise that is broken by hand is found, and what is allowed is not."""
import pytest

from tests.simulation.amqp_heartbeats import HeartbeatLedger
from tests.simulation.world import World


@pytest.fixture
def ledger():
    return HeartbeatLedger(World(1), "beating", 2)


def findings(ledger):
    return [finding.split(": ", 2)[2] for finding in ledger.world.findings]


@pytest.mark.parametrize("silence_s, stalled_s, is_found", [
    (1.4, 0.0, False), (1.6, 0.0, True), (4.4, 3.0, False), (4.6, 3.0, True)])
def test_client_that_hears_nothing_for_more_than_half_an_interval_is_found(
        ledger, silence_s, stalled_s, is_found):
    ledger.hears(silence_s, stalled_s)

    assert bool(findings(ledger)) is is_found and ledger.exercised["heartbeats heard"] == 1


@pytest.mark.parametrize("silence_s, is_found", [(4.8, True), (4.9, False)])
def test_client_that_is_cut_off_too_early_is_found(ledger, silence_s, is_found):
    ledger.is_cut_off(silence_s)

    assert bool(findings(ledger)) is is_found and ledger.exercised["cut off"] == 1


def test_silent_client_that_is_not_cut_off_is_found(ledger):
    """A stall of the broker puts it off."""
    assert ledger.left_s(4.0, 0.0) == pytest.approx(2.0)
    assert ledger.left_s(6.0, 3.0) == pytest.approx(3.0)
    assert not findings(ledger)

    ledger.left_s(6.1, 0.0)

    assert findings(ledger) == ["silent for 6.100 s and connected, with heartbeats every 2 s"]
