"""Filter set: which of one session's topic filters match a topic (MQTT 5 §4.7).

A leaf of mqtt.model, beside filter_tree, which has all sessions' filters. Of the filters with the same number
of levels and ``+`` in the same places at most one matches a topic; its text follows from the topic and is
looked up. So a filter costs no node, and a topic one lookup per arrangement, whose number is bounded
(filter_tree.Arrangements).
"""
from gomq_py.mqtt.wire.topics import is_shared, split_shared

# Filters of more levels have a tuple for a key instead of a number.
_NUMBERED = 40


class Shape:
    """A shape of filters: positions of ``+``, ``levels`` before a ``#``, ``is_below`` (ends with ``#``), and
    the ``count`` of filters.
    """

    __slots__ = ("pluses", "levels", "is_below", "count")

    def __init__(self, topic_filter):
        levels = topic_filter.split("/")
        self.is_below = levels[len(levels) - 1] == "#"
        if self.is_below:
            levels.pop()
        self.levels = len(levels)
        self.pluses = tuple([index for index, level in enumerate(levels) if level == "+"])
        self.count = 0


class FilterSet:
    """Valid filters; a shared filter matches like the filter behind its share name."""

    __slots__ = ("filters", "shapes", "shared")

    def __init__(self):
        self.filters = set()
        self.shapes = {}
        self.shared = {}  # filter behind a share name: [filters that are shared]

    def add(self, topic_filter):
        """Add a filter, once."""
        if topic_filter in self.filters:
            return
        self.filters.add(topic_filter)
        plain = topic_filter
        if is_shared(topic_filter):
            plain = split_shared(topic_filter)[1]
            self.shared.setdefault(plain, []).append(topic_filter)
        key = _key(plain)
        shape = self.shapes.get(key)
        if shape is None:
            shape = self.shapes[key] = Shape(plain)
        shape.count += 1

    def discard(self, topic_filter):
        """Remove a filter if it is present."""
        if topic_filter not in self.filters:
            return
        self.filters.discard(topic_filter)
        plain = topic_filter
        if is_shared(topic_filter):
            plain = split_shared(topic_filter)[1]
            same = self.shared[plain]
            same.remove(topic_filter)
            if not same:
                del self.shared[plain]
        key = _key(plain)
        shape = self.shapes[key]
        shape.count -= 1
        if shape.count == 0:
            del self.shapes[key]

    def match(self, topic):
        """The matching filters, as a list."""
        found = []
        levels = topic.split("/")
        # wildcards do not match a first level that begins with $
        is_dollar = topic[:1] == "$"
        may_be_plain = not is_shared(topic)
        for shape in self.shapes.values():
            if shape.levels > len(levels) or shape.levels < len(levels) and not shape.is_below:
                continue
            if is_dollar and (shape.levels == 0 or shape.pluses and shape.pluses[0] == 0):
                continue
            parts = levels[:shape.levels]
            for index in shape.pluses:
                parts[index] = "+"
            if shape.is_below:
                parts.append("#")
            candidate = "/".join(parts)
            if may_be_plain and candidate in self.filters:
                found.append(candidate)
            if candidate in self.shared:
                found += self.shared[candidate]
        return found


def _key(topic_filter):
    """A key that is equal for filters of one shape."""
    one = 1  # typed, as wide as the shifted value
    pluses = 0
    level = 0
    for character in topic_filter:
        if character == "/":
            level += 1
        elif character == "+" and level < _NUMBERED:
            pluses |= one << level
    if level >= _NUMBERED:
        shape = Shape(topic_filter)
        return shape.pluses, shape.levels, shape.is_below
    is_below = topic_filter == "#" or topic_filter.endswith("/#")
    return pluses << 8 | level << 1 | is_below
