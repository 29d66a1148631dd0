"""Key index: maps very many keys to numbers, in the order of the keys.

A key costs its text and some 24 bytes: the map is a list of sorted lists, each with an array of numbers.
``seek`` finds the first key at or after a given key, so that a walk can go on after keys were added and
removed.
"""
from array import array
from bisect import bisect_left, bisect_right

# Keys per part: an insertion moves 4 KiB on average, some 0.1 us; a million keys have 2000 parts.
PART = 1024
# The character after "/": topic + "/" + anything sorts before topic + this.
_BEHIND = "0"
# The character after "$": no wildcard in the first level matches topics that begin with "$" [MQTT-4.7.2-1].
_BEHIND_DOLLAR = "%"


class KeyIndex:
    """A sorted map from ``count`` text keys to unsigned 64-bit numbers."""

    __slots__ = ("count", "_firsts", "_keys", "_numbers")

    def __init__(self, pairs=()):
        """Fill the map from a dict ``pairs``, {key: number}."""
        keys = sorted(pairs)
        self.count = len(keys)
        self._firsts = keys[::PART]
        self._keys = [keys[at:at + PART] for at in range(0, len(keys), PART)]
        self._numbers = [array("Q", [pairs[key] for key in part]) for part in self._keys]

    def get(self, key):
        part, at = self._find(key)
        if part < 0 or at == len(self._keys[part]) or self._keys[part][at] != key:
            return None
        return self._numbers[part][at]

    def put(self, key, number):
        """Set the key's number. Returns its previous number, or None if the key is new."""
        part, at = self._find(key)
        if part < 0:
            part = 0
            if not self._keys:
                self._keys.append([])
                self._numbers.append(array("Q"))
                self._firsts.append(key)
        keys, numbers = self._keys[part], self._numbers[part]
        if at < len(keys) and keys[at] == key:
            before = numbers[at]
            numbers[at] = number
            return before
        keys.insert(at, key)
        numbers.insert(at, number)
        self._firsts[part] = keys[0]
        self.count += 1
        if len(keys) > 2 * PART:
            self._split(part)
        return None

    def pop(self, key):
        """Remove the key. Returns its number, or None if it is missing."""
        part, at = self._find(key)
        if part < 0 or at == len(self._keys[part]) or self._keys[part][at] != key:
            return None
        keys = self._keys[part]
        del keys[at]
        self.count -= 1
        number = self._numbers[part].pop(at)
        if keys:
            self._firsts[part] = keys[0]
        else:
            del self._keys[part], self._numbers[part], self._firsts[part]
        return number

    def seek(self, key):
        """Return (key, number) of the first key that is not less than ``key``, or None."""
        part, at = self._first_from(key)
        return None if part == len(self._keys) else (self._keys[part][at], self._numbers[part][at])

    def page(self, key):
        """Return some (key, number) pairs in order, from ``key`` or the next key on; [] at the end."""
        part, at = self._first_from(key)
        return [] if part == len(self._keys) else list(zip(self._keys[part][at:], self._numbers[part][at:]))

    def _first_from(self, key):
        """Return (number of a sorted list, index in the list) of the first key not less than ``key``."""
        part, at = self._find(key)
        part = max(part, 0)
        if part < len(self._keys) and at == len(self._keys[part]):
            return part + 1, 0
        return part, at

    def _find(self, key):
        """Return (list number, index) of the key, or of where to insert it; (-1, 0) before the first key."""
        part = bisect_right(self._firsts, key) - 1
        return (part, 0) if part < 0 else (part, bisect_left(self._keys[part], key))

    def _split(self, part):
        keys, numbers = self._keys[part], self._numbers[part]
        self._keys.insert(part + 1, keys[PART:])
        self._numbers.insert(part + 1, numbers[PART:])
        self._firsts.insert(part + 1, keys[PART])
        del keys[PART:], numbers[PART:]


class TopicWalk:
    """Finds the topics of a KeyIndex that a filter matches, in order. Call step() until ``is_over``."""

    # Skips topics that cannot match: a filter without wildcards costs one lookup; ``+`` costs one lookup per
    # different level at its position. Topics that are added or removed during the walk may be found or
    # missed.
    __slots__ = ("_index", "_levels", "_at")

    def __init__(self, index, topic_filter):
        self._index = index
        self._levels = topic_filter.split("/")
        self._at = _literal_start(self._levels)  # the first text that may match, or None

    def step(self):
        """Look at one topic. Returns (topic, number) if the topic matches, otherwise None."""
        found = None if self._at is None else self._index.seek(self._at)
        if found is None:
            self._at = None
            return None
        topic = found[0]
        behind = _behind(self._levels, topic)
        if behind == "":
            self._at = successor(topic)
            return found
        self._at = behind
        return None

    @property
    def is_over(self):
        return self._at is None


def _literal_start(levels):
    """Return the smallest topic that may match a filter with these levels."""
    literal = []
    for level in levels:
        if level in ("+", "#"):
            break
        literal.append(level)
    return "/".join(literal)


def _behind(levels, topic):
    """Return the next text after ``topic`` that may match a filter, or None; "" if ``topic`` matches."""
    there = topic.split("/")
    plus = -1  # the last level with a wildcard
    for at, level in enumerate(levels):
        if level == "#":
            return _BEHIND_DOLLAR if at == 0 and topic[:1] == "$" else ""
        if at == len(there):  # the topic is shorter
            return successor(topic)
        if level == "+":
            if at == 0 and topic[:1] == "$":
                return _BEHIND_DOLLAR
            plus = at
        elif level != there[at]:
            wanted = "/".join([*there[:at], level])
            if topic < wanted:
                return wanted
            if topic < wanted + "/":
                return wanted + "/"
            # Another match differs from the topic in a level where the filter has +.
            return "/".join(there[:plus + 1]) + _BEHIND if plus >= 0 else None
    if len(there) > len(levels):
        return "/".join(there[:len(levels)]) + _BEHIND
    return ""


def successor(key):
    """Return the least text greater than the key: the key and U+0000, which no key contains."""
    return key + "\0"
