"""The trie answers as a naive matcher does, and stays bounded whatever the patterns."""
import random
import time
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.broker.exchanges import topic_trie
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
    targets = {}
    trie.match(key, targets)
    return set(targets)


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
    ("#", "", True), ("#", "a.b", True), ("*", "", False), ("*", "a", True), ("*", "a.b", False),
    ("a.#", "a", True), ("a.#.b", "a.b", True),
    ("a.*.b", "a.b", False), ("", "", True), ("", "a", False), ("a.", "a", False), ("a.", "a.", True),
    ("*.*", ".", True), ("#.a.#", "b.a.c", True),
    ("a*", "ab", False), ("#.#.#", "a", True),
])
def test_wildcards_mean_what_the_specification_says(pattern, key, expected):
    trie = TopicTrie()
    trie.add(pattern, "q")

    assert (matched(trie, key) == {"q"}) is expected


def test_many_hashes_do_not_blow_up():
    """40 ``#`` against 60 words would be astronomically many ways to backtrack;
    one step per word and node takes milliseconds.
    """
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


# patterns in which words follow a #

@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(st.sampled_from(["bind", "bind", "bind", "unbind", "match"]), PATTERNS, KEYS), max_size=40
    ),
    st.sampled_from([0, 4, 10]),
)
def test_shards_match_as_the_naive_matcher_does_while_patterns_come_and_go(steps, walked):
    """Shards are so small that there are several, and are made anew; few patterns or none with words behind
    a # or with * are walked.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_trie, "SHARD_BITS", 12)
        patch.setattr(topic_trie, "WALKED", walked)
        patch.setattr(topic_trie, "ARRANGEMENTS", walked // 4)
        trie, bound = TopicTrie(), []
        for verb, pattern, key in steps:
            if verb == "bind":
                trie.add(pattern, pattern)
                bound.append(pattern)
            elif verb == "unbind" and bound:
                trie.remove(bound[0], bound[0])
                del bound[0]
            assert matched(trie, key) == {each for each in bound if naive(each, key)}
        for pattern in bound:
            trie.remove(pattern, pattern)
        assert trie.is_empty() and not trie.shards.shard_count() and not trie.arrangements and not trie.walked


def full_trie():
    """A trie that walks as many patterns with words behind a # as it may: the next go into shards."""
    trie = TopicTrie()
    for number in range(topic_trie.WALKED // 4):
        trie.add(f"filler.#.{number}.x", "filler")
    assert trie.walked == topic_trie.WALKED
    return trie


def test_many_shards_match_as_the_naive_matcher_does():
    """1500 patterns of some ten words, of which a third, then most, go again and others come:
    each key asks several shards.
    """
    dice = random.Random(5)
    trie, bound = full_trie(), {}

    def some_pattern():
        return ".".join(dice.choice("abc*#") for _ in range(dice.randrange(2, 16)))

    def check():
        for _ in range(25):
            key = ".".join(dice.choice("abc") for _ in range(dice.randrange(0, 20)))
            assert matched(trie, key) == {pattern for pattern in bound if naive(pattern, key)}

    for gone in (500, 900, 1600):
        while len(bound) < 1500:
            pattern = some_pattern()
            if pattern not in bound:
                trie.add(pattern, pattern)
                bound[pattern] = None
        assert trie.shards.shard_count() > 1
        check()
        for pattern in dice.sample(list(bound), min(gone, len(bound))):
            trie.remove(pattern, pattern)
            del bound[pattern]
        check()

    assert trie.shards.words == trie.shards.shard_count() == 0


def test_change_of_patterns_makes_at_most_one_shard_anew():
    """20 000 words in shards: adding makes none anew, each removal one at most,
    and all removals together no more than they remove.
    """
    trie = full_trie()
    patterns = [f"#.w{number}" + ".a" * 18 for number in range(1000)]
    for pattern in patterns:
        trie.add(pattern, "q")
    assert trie.shards.rebuilt == 0
    assert trie.shards.shard_count() == 5

    largest = 0
    for pattern in patterns[::2] + patterns[1::2]:
        before = trie.shards.rebuilt
        trie.remove(pattern, "q")
        largest = max(largest, trie.shards.rebuilt - before)

    assert 0 < largest <= topic_trie.SHARD_BITS / 2
    assert trie.shards.rebuilt <= 20 * len(patterns)


def test_room_of_removed_patterns_is_used_again():
    """A pattern comes for each that goes: there are never more than twice the
    shards that the patterns need.
    """
    trie = full_trie()
    for number in range(1000):
        trie.add(f"#.w{number}" + ".a" * 18, "q")

    for number in range(1000, 20_000):
        trie.remove(f"#.w{number - 1000}" + ".a" * 18, "q")
        trie.add(f"#.w{number}" + ".a" * 18, "q")

    assert trie.shards.words == 20_000
    assert trie.shards.shard_count() <= 2 * 5 + 1


def test_destinations_that_come_and_go_are_seen_by_the_shards():
    trie = full_trie()
    trie.add("#.a.#", "one")
    trie.add("#.a.#", "two")
    trie.add("#.b", "other")

    trie.remove("#.a.#", "one")
    trie.add("#.a.#", "three")
    trie.add("#.#.a.#", "four")

    assert matched(trie, "a") == {"two", "three", "four"}
    assert trie.shards.words == 3 + 2


def test_hash_at_the_end_matches_at_once_and_goes_into_no_shard():
    trie = full_trie()

    for number in range(1000):
        trie.add(f"a.*.{number}.#", number)

    assert trie.shards.words == 0
    assert matched(trie, "a.b.7") == matched(trie, "a.b.7.c.d") == {7}


def test_words_are_counted_where_words_follow_a_hash_and_once_for_a_pattern():
    trie = TopicTrie()

    assert [
        trie.costly_words_added(pattern) for pattern in ("a.b.c", "a.#", "*.#.*.#", "#.a", "#.#.*.a", "")
    ] == [0, 0, 0, 2, 3, 0]
    trie.add("#.a", "one")
    trie.add("#.#.a", "two")
    assert trie.costly_words() == 2
    assert trie.costly_words_added("#.a") == 0
    trie.remove("#.a", "one")
    assert trie.costly_words() == 2
    trie.remove("#.a", "two")
    assert trie.costly_words() == 0


def test_patterns_with_stars_in_ever_other_places_go_into_shards():
    """Of 3000 patterns of 60 words a key would reach 3000 nodes at each word;
    as many with * at one place are one node, and walked.
    """
    dice = random.Random(7)
    trie = TopicTrie()
    patterns = [".".join(dice.choice("aaaa*") for _ in range(60)) for _ in range(3000)]
    for number in range(3000):
        trie.add(f"*.*.*.{number}", number)
    assert trie.costly_words() == 0
    assert trie.costly_words_added(patterns[0]) == 0
    for pattern in patterns:
        trie.add(pattern, pattern)

    assert len(trie.arrangements) == topic_trie.ARRANGEMENTS
    assert trie.costly_words() == 60 * (3000 - topic_trie.ARRANGEMENTS + 1)
    assert trie.costly_words_added("*" + ".*" * 60) == 61
    assert trie.costly_words_added("*.*.*.new") == 0
    assert matched(trie, ".".join("a" * 60)) == set(patterns)
    assert matched(trie, "a.b.c.7") == {7}
    for pattern in patterns:
        trie.remove(pattern, pattern)
    assert trie.arrangements == {7: 3000}
    assert trie.costly_words() == 0
