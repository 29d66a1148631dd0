"""KeyIndex: held against a dict and its sorted keys, with parts small enough to be split."""
import random

import pytest
from hypothesis import given, settings, strategies as st

from gomq_py.mqtt.model import key_index
from gomq_py.mqtt.model.key_index import KeyIndex, successor

KEYS = st.text("ab/é", max_size=4)
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 2 ** 64 - 1)), max_size=60)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(key_index, "PART", 2)


def content(index):
    found, place = [], ""
    while page := index.page(place):
        found += page
        place = successor(page[-1][0])
    return found


@given(st.dictionaries(KEYS, st.integers(0, 2 ** 64 - 1)), CHANGES, st.lists(KEYS, max_size=5))
@settings(max_examples=300, deadline=None)
def test_index_is_as_a_dict_in_the_order_of_its_keys(pairs, changes, places):
    index, model = KeyIndex(pairs), dict(pairs)
    for key, number in changes:
        if number is None:
            assert index.pop(key) == model.pop(key, None)
        else:
            assert index.put(key, number) == model.get(key)
            model[key] = number

    assert content(index) == sorted(model.items()) and index.count == len(model)
    for place in [*places, *model]:
        assert index.get(place) == model.get(place)
        assert index.seek(place) == next((pair for pair in sorted(model.items()) if pair[0] >= place), None)


def test_thousands_of_keys_in_any_order_come_and_go():
    chance = random.Random(3)
    keys = [str(number) for number in range(3000)]
    chance.shuffle(keys)
    index = KeyIndex()
    for number, key in enumerate(keys):
        index.put(key, number)

    assert content(index) == sorted((key, number) for number, key in enumerate(keys))
    for number, key in enumerate(keys):
        assert index.pop(key) == number
    assert content(index) == [] and index.count == 0 and index.seek("") is None
