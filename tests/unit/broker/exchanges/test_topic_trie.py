"""The trie answers as a naive matcher does, and stays bounded whatever the patterns."""
import random
import time
from functools import lru_cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.broker.exchanges import topic_trie
from gomq_py.broker.exchanges.topic_bits import TopicBits
from gomq_py.broker.exchanges.topic_trie import TopicTrie


def naive(pattern, key):
    """The rule, word by word, straight from the specification."""
    words, asked = (text.split(".") if text else [] for text in (key, pattern))

    @lru_cache(maxsize=None)
    def matches(i, j):
        if j == len(asked):
            return i == len(words)
        if asked[j] == "#":
            return matches(i, j + 1) or (i < len(words) and matches(i + 1, j))
        return i < len(words) and asked[j] in ("*", words[i]) and matches(i + 1, j + 1)

    return matches(0, 0)


def matched(trie, key):
    targets = set()
    trie.match(key, targets)
    return targets


WORDS = st.sampled_from(["a", "b", "", "*", "#", "long-word", "é"])
PATTERNS = st.lists(WORDS, max_size=6).map(".".join)
KEYS = st.lists(st.sampled_from(["a", "b", "", "c", "long-word", "é", "#", "*"]), max_size=6).map(".".join)


@given(st.lists(PATTERNS, max_size=12), st.lists(KEYS, max_size=8))
def test_trie_matches_as_the_naive_matcher_does(patterns, keys):
    trie = TopicTrie()
    for pattern in patterns:
        trie.add(pattern, pattern)

    for key in keys:
        assert matched(trie, key) == {pattern for pattern in patterns if naive(pattern, key)}


@settings(max_examples=200)
@given(st.lists(st.tuples(PATTERNS, st.sampled_from("xyz")), max_size=10), st.data())
def test_what_is_left_after_removals_matches_as_if_never_added(bindings, data):
    trie = TopicTrie()
    for pattern, destination in bindings:
        trie.add(pattern, destination)
    gone = data.draw(st.lists(st.sampled_from(range(len(bindings))), unique=True)) if bindings else []

    for index in gone:
        trie.remove(*bindings[index])

    left = [binding for index, binding in enumerate(bindings) if index not in gone]
    assert trie.size == len(left)
    for key in ("", "a", "a.b", "a.b.c", "b.a.a.b"):
        assert matched(trie, key) == {destination for pattern, destination in left if naive(pattern, key)}


@pytest.mark.parametrize("pattern, key, expected", [
    ("#", "", True), ("#", "a.b", True), ("*", "", False), ("*", "a", True), ("*", "a.b", False), ("a.#", "a", True), ("a.#.b", "a.b", True),
    ("a.*.b", "a.b", False), ("", "", True), ("", "a", False), ("a.", "a", False), ("a.", "a.", True), ("*.*", ".", True), ("#.a.#", "b.a.c", True),
    ("a*", "ab", False), ("#.#.#", "a", True),
])
def test_wildcards_mean_what_the_specification_says(pattern, key, expected):
    trie = TopicTrie()
    trie.add(pattern, "q")

    assert (matched(trie, key) == {"q"}) is expected


def test_many_hashes_do_not_blow_up():
    """40 ``#`` against 60 words would be astronomically many ways to backtrack; one step per word and node takes milliseconds."""
    trie = TopicTrie()
    trie.add(".".join(["#", "a"] * 40), "q")
    key = ".".join(["a", "b"] * 60)

    began = time.thread_time()
    assert matched(trie, key) == set()
    assert matched(trie, key + ".a") == {"q"}

    assert time.thread_time() - began < 1


def test_removing_everything_leaves_an_empty_trie():
    trie = TopicTrie()
    patterns = ["a.b.c", "a.*.c", "#.b", "", "a.#.#"]
    for pattern in patterns:
        trie.add(pattern, "q")

    for pattern in patterns:
        trie.remove(pattern, "q")

    assert trie.size == 0
    assert trie.is_empty()


# keys that reach very many nodes

@given(st.lists(PATTERNS, max_size=12), st.lists(KEYS, max_size=8))
def test_bits_match_as_the_naive_matcher_does(patterns, keys):
    trie = TopicTrie()
    for pattern in patterns:
        trie.add(pattern, pattern)
    bits = TopicBits(trie.patterns())

    for key in keys:
        targets = set()
        bits.match(key.split(".") if key else [], targets)
        assert targets == {pattern for pattern in patterns if naive(pattern, key)}


def test_keys_that_reach_many_nodes_are_matched_by_bits_as_by_the_walk(monkeypatch):
    """729 patterns of six words a, * and #: at first such keys are walked, then matched by bits, until patterns come and go."""
    monkeypatch.setattr(topic_trie, "BUILT_FOR", 10)
    patterns = [".".join(words) for words in product("a*#", repeat=6)]
    trie = TopicTrie()
    for pattern in patterns:
        trie.add(pattern, pattern)
    dice = random.Random(5)
    keys = [".".join(dice.choice("ab") for _ in range(dice.randrange(1, 9))) + ".a" * 12 + ".b" * dice.randrange(9) for _ in range(40)]
    expected = {key: {pattern for pattern in patterns if naive(pattern, key)} for key in keys}

    assert all(matched(trie, key) == expected[key] for key in keys)
    assert trie.bits is not None
    assert all(matched(trie, key) == expected[key] for key in keys)

    trie.add("#.b", "new")
    assert trie.bits is None
    assert all(matched(trie, key) == expected[key] | ({"new"} if key.endswith("b") else set()) for key in keys)
    assert trie.bits is not None
    trie.remove("#.b", "new")
    assert all(matched(trie, key) == expected[key] for key in keys)


def test_destinations_that_come_and_go_are_seen_by_the_bits():
    trie = TopicTrie()
    trie.add("#.a.#", "one")
    trie.add("#.a.#", "two")
    bits = TopicBits(trie.patterns())

    trie.remove("#.a.#", "one")
    trie.add("#.a.#", "three")

    targets = set()
    bits.match(["a"], targets)
    assert targets == {"two", "three"}


def test_masks_of_words_are_kept_within_bounds(monkeypatch):
    monkeypatch.setattr("gomq_py.broker.exchanges.topic_bits.MASK_OCTETS", 100)
    trie = TopicTrie()
    for number in range(200):
        trie.add(f"#.w{number}", number)
    bits = TopicBits(trie.patterns())

    for number in range(200):
        targets = set()
        bits.match([f"w{number}"], targets)
        assert targets == {number}

    assert len(bits._masks) < 5
