"""Topic walk: the topics of a sorted index that a filter matches, found by going from one to the next that
may match (MQTT 5 §4.7).

A leaf of mqtt.model, beside filter_tree, which finds the filters of a topic. A filter without wildcards costs
one look; one with ``+`` a look per level that is there; what no match can lie in is stepped over as a whole.
"""
from gomq_py.mqtt.model.key_index import successor

# The first character behind "/": what begins with a topic, "/" and anything lies before the topic and this.
_BEHIND = "0"
# The same of "$", with which topics begin that no wildcard matches in the first level [MQTT-4.7.2-1].
_BEHIND_DOLLAR = "%"


class TopicWalk:
    """``step()`` gives (topic, number) of each topic of a KeyIndex that matches, in order, until the walk
    ``is_over``.

    Topics that come and go meanwhile are there, or not.
    """

    __slots__ = ("_index", "_levels", "_at")

    def __init__(self, index, topic_filter):
        self._index = index
        self._levels = topic_filter.split("/")
        self._at = _literal_start(self._levels)  # from where on a topic may match, or None

    def step(self):
        """Look at one topic: (topic, number) where it matches, None where it does not, and the walk
        ``is_over`` after the last.
        """
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
    """"" where the topic matches the filter of these levels, else the first text behind it that may; None:
    there is none.
    """
    there = topic.split("/")
    plus = -1  # the last level that the filter leaves open
    for at, level in enumerate(levels):
        if level == "#":
            return _BEHIND_DOLLAR if at == 0 and topic[:1] == "$" else ""
        if at == len(there):  # it is shorter
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
