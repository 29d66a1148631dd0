"""Topic walk: the topics of a sorted index that a filter matches, found by skipping to the next possible
match (MQTT 5 §4.7).

A leaf of mqtt.model, beside filter_tree, which finds the filters of a topic. A filter without wildcards costs
one lookup, one with ``+`` a lookup per existing level; ranges without a possible match are skipped.
"""
from gomq_py.mqtt.model.key_index import successor

# The character after "/": topic + "/" + anything sorts before topic + this.
_BEHIND = "0"
# The character after "$": no wildcard in the first level matches topics that begin with "$" [MQTT-4.7.2-1].
_BEHIND_DOLLAR = "%"


class TopicWalk:
    """``step()`` returns (topic, number) of each matching topic of a KeyIndex, in order, until ``is_over``.
    Topics added or removed meanwhile may be missed or found.
    """

    __slots__ = ("_index", "_levels", "_at")

    def __init__(self, index, topic_filter):
        self._index = index
        self._levels = topic_filter.split("/")
        self._at = _literal_start(self._levels)  # the first text that may match, or None

    def step(self):
        """Look at one topic. Returns (topic, number) if it matches, else None; ``is_over`` after the last."""
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
        """Whether there are no more topics to look at."""
        return self._at is None


def _literal_start(levels):
    """The first text that a match may be."""
    literal = []
    for level in levels:
        if level in ("+", "#"):
            break
        literal.append(level)
    return "/".join(literal)


def _behind(levels, topic):
    """"" if the topic matches the filter's levels, else the next text that may match, or None."""
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
            # Only other levels in the place of a + lead to another match.
            return "/".join(there[:plus + 1]) + _BEHIND if plus >= 0 else None
    if len(there) > len(levels):
        return "/".join(there[:len(levels)]) + _BEHIND
    return ""
