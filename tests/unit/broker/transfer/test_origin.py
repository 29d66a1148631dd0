"""Where a dead letter came from."""
import pytest

from gomq_py.broker.transfer.origin import Origin, origin_of
from gomq_py.content.fields import encode_table
from gomq_py.content.properties import Properties


def death(queue, reason="rejected", exchange="x", keys=("k",)):
    return {"queue": queue, "reason": reason, "exchange": exchange, "routing-keys": list(keys), "count": 1}


def origin(**headers):
    found = origin_of(encode_table({key.replace("_", "-"): value for key, value in headers.items()}))
    return None if found is None else (found.queue, found.exchange, found.routing_keys)


def test_the_first_death_is_the_last_in_the_list():
    assert origin(x_death=[death("retry", "expired"), death("work", keys=("a", "cc"))]) == (
        "work", "x", ["a", "cc"]
    )


def test_the_first_death_is_where_the_headers_say():
    """The list is ordered by the latest death, so that a message that died twice in its
    first queue has that in front.
    """
    deaths = [death("work"), death("retry", "expired", "dlx")]

    assert origin(x_death=deaths, x_first_death_queue="work", x_first_death_reason="rejected") == (
        "work", "x", ["k"]
    )


@pytest.mark.parametrize("rubbish", [
    5, "text", [], [1], [{}], [{"queue": 1, "exchange": "", "routing-keys": ["k"]}], [death("q", keys=())]
])
def test_rubbish_is_no_origin(rubbish):
    assert origin(x_death=rubbish) is None


def test_no_headers_are_no_origin():
    assert origin_of(None) is None and origin() is None


def test_cleaning_takes_only_what_dead_lettering_wrote():
    properties = Properties(content_type="t", headers={
        "x-death": [death("q")], "x-first-death-queue": "q", "x-last-death-reason": "rejected",
        "x-mine": 1}).encode()

    assert Properties.decode(Origin.cleaned(properties)).as_dict() == {
        "content_type": "t", "headers": {"x-mine": 1}
    }
