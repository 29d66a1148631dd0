"""Samples rendered line by line: what Prometheus' own parser reads is what was given."""
import math

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from gomq_py.http.exposition import FREED_LOOK, SLICE, rendered
from gomq_py.hub import turns
from gomq_py.hub.scheduler import SliceClock

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def read(families):
    text = b"".join(rendered(families)).decode()
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text) for sample in family.samples
    ]


@given(st.dictionaries(
    st.tuples(TEXTS, TEXTS), st.integers(0, 2**53) | st.floats(allow_nan=False), max_size=5
))
@settings(max_examples=100, deadline=None)
def test_labels_and_values_survive(samples):
    family = GaugeMetricFamily("thing", "Things", labels=("vhost", "queue"))

    assert read([(family, iter(samples.items()))]) == [
        ("thing", {"vhost": vhost, "queue": queue}, value) for (vhost, queue), value in samples.items()]


def test_counters_are_named_total_and_slices_do_not_show():
    count = 2 * SLICE + 1
    family = CounterMetricFamily("thing", "Things", labels=("queue",))

    samples = read([
        GaugeMetricFamily("one", "One", value=1),
        (family, (((str(number),), number) for number in range(count))),
    ])

    assert samples == [
        ("one", {}, 1), *(("thing_total", {"queue": str(number)}, number) for number in range(count))
    ]


def test_what_is_no_number_and_no_text_does_no_harm():
    """A name may hold octets that are no UTF-8."""
    family = GaugeMetricFamily("thing", "Things", labels=("queue",))

    (first, second) = read([(family, iter([(("a\udcff",), math.inf), (("b",), math.nan)]))])

    assert first == ("thing", {"queue": "a?"}, math.inf)
    assert math.isnan(second[2])


def test_texts_of_labels_are_freed_in_slices(monkeypatch):
    """Those of 100 000 queues held everybody up for 20 ms when they were freed together.

    Every slice here ends with its first look at the clock.
    """
    gave_way = []
    monkeypatch.setattr(turns, "SliceClock", lambda every: SliceClock(0, every))
    monkeypatch.setattr(turns, "give_way", lambda: gave_way.append(None))
    family = GaugeMetricFamily("thing", "Things", labels=("queue",))

    rendered([(family, (((str(number),), number) for number in range(10 * FREED_LOOK)))])

    assert len(gave_way) == 10
