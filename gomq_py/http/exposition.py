"""Exposition: metric families as Prometheus' text, a slice at a time, so that ten thousand queues hold up no message.

Families are prometheus-client's and so is their text. One is given whole, or empty and paired with its samples, which then are made as they are
rendered.
"""
from itertools import islice

from prometheus_client.exposition import generate_latest

from gomq_py.broker.turns import give_way

# Samples rendered between two turns of the loop: some 5 us each.
SLICE = 200
# Families that are given whole between two turns: some 30 us each.
WHOLE_SLICE = 20


class _Some:
    """What prometheus-client renders: a registry of these families."""

    def __init__(self, families):
        self._families = families

    def collect(self):
        return self._families


def rendered(families):
    """The text of families; pairs of a family and its (labels, value) samples are rendered in slices. May switch."""
    parts, whole = [], []
    for family in families:
        if isinstance(family, tuple):
            _render_whole(parts, whole)
            _render_sliced(parts, *family)
        else:
            whole.append(family)
            if len(whole) == WHOLE_SLICE:
                _render_whole(parts, whole)
    _render_whole(parts, whole)
    return b"".join(parts)


def _render_whole(parts, whole):
    if whole:
        parts.append(generate_latest(_Some(whole)))
        whole.clear()
        give_way()


def _render_sliced(parts, family, samples):
    parts.append(generate_latest(_Some((family,))))
    head = len(parts[-1])
    while some := list(islice(samples, SLICE)):
        family.samples.clear()
        for labels, value in some:
            family.add_metric(labels, value)
        parts.append(generate_latest(_Some((family,)))[head:])
        give_way()
