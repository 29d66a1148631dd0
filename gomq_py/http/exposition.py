"""Writes metric families as Prometheus' text, in slices: metrics of ten thousand queues delay no message.

The library prometheus-client makes families and their text. For a family with many samples this module writes
the samples itself: the library would take 5 us per sample.
"""
from itertools import islice
from types import SimpleNamespace

from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.utils import floatToGoString

from gomq_py.hub.turns import give_way, paced

# Samples rendered per turn of the loop: some 1 us each.
SLICE = 500
# Whole families rendered per turn: some 30 us each.
WHOLE_SLICE = 20
# Texts of labels freed between two checks of the clock: some 0.1 us each.
FREED_LOOK = 100
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def rendered(families):
    """Return the text of metric families for Prometheus, as a list of bytes objects. A family with many
    samples is given as (family, iterator of (label values, value)). May switch greenlets.
    """
    parts, whole = [], []
    labels = {}  # {(names, values): text}: a queue's labels recur in many families
    for family in families:
        if isinstance(family, tuple):
            _render_whole(parts, whole)
            _render_sliced(parts, family[0], family[1], labels)
        else:
            whole.append(family)
            if len(whole) == WHOLE_SLICE:
                _render_whole(parts, whole)
    _render_whole(parts, whole)
    for texts in labels.values():
        for _ in paced(range(len(texts)), FREED_LOOK):  # those of 100 000 queues at once take 20 ms
            texts.popitem()
    return parts


def _render_whole(parts, whole):
    if whole:
        parts.append(generate_latest(SimpleNamespace(collect=lambda: whole)))
        whole.clear()
        give_way()


def _render_sliced(parts, family, samples, labels):
    parts.append(generate_latest(SimpleNamespace(collect=lambda: (family,))))
    name = family.name + "_total" if isinstance(family, CounterMetricFamily) else family.name
    names = family._labelnames
    texts = labels.setdefault(names, {})
    while some := list(islice(samples, SLICE)):
        lines = []
        for values, value in some:
            text = texts.get(values)
            if text is None:
                text = texts[values] = _labels(names, values)
            lines.append(f"{name}{text} {value if type(value) is int else floatToGoString(value)}\n")
        parts.append("".join(lines).encode("utf-8", "replace"))
        give_way()


def _labels(names, values):
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values)) + "}"
