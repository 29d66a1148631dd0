"""Reads from the node's Rates what a request asks for: the rates and histories of the page's curves."""
from flask import g, request

from gomq_py.http.answers import node, number_in
from gomq_py.http.errors import BadRequest
from gomq_py.http.rates import CATEGORIES

# Oldest age that a query may ask for; single things keep only the last ``stats_log_size`` samples.
AGE_MAX_S = 86400
# A list has at most so many samples of a counter, so that a page of 500 queues is some 20 MB at most; one of
# at most so many entities begins histories, which then leave room for those of other viewers.
LIST_SAMPLES_MAX, LIST_HISTORIES_MAX = 60, 100


def windows():
    """Return {category: (age_s, incr_s)} from the query: the greatest age of the wanted samples, and the
    interval between two of them, in seconds. Raises BadRequest.
    """
    found = {}
    for category in CATEGORIES:
        age, increment = request.args.get(f"{category}_age"), request.args.get(f"{category}_incr")
        if age is not None and increment is not None:
            found[category] = (_seconds(f"{category}_age", age), _seconds(f"{category}_incr", increment))
    return found


def with_history():
    """Make ``view()`` return the samples, too, that the request's query asks for. Raises BadRequest."""
    g.windows = windows()


def with_histories(count):
    """Make ``view()`` return samples, too, as the request's query asks. ``count``: number of entities in the
    answer's list. The samples may be further apart than asked for, and a long list begins no new histories.
    Raises BadRequest.
    """
    g.windows = {
        category: (age_s, max(incr_s, age_s / LIST_SAMPLES_MAX))
        for category, (age_s, incr_s) in windows().items()
    }
    g.begins_histories = count <= LIST_HISTORIES_MAX


def view(group, thing):
    """Return the View (values, rates) of an entity ``thing``. It has samples if ``with_history()`` or
    ``with_histories()`` was called before in this request. May switch greenlets if the counters are sums over
    queues.
    """
    return node().rates.look(group, thing, g.get("windows"), g.get("begins_histories", True))


def _seconds(name, text):
    seconds = number_in(text)
    if seconds is None or not 0 < seconds <= AGE_MAX_S:
        raise BadRequest(f"{name} must be between 1 and {AGE_MAX_S} seconds")
    return seconds
