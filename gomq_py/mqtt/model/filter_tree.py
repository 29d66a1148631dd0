"""Filter tree: finds the destinations of all filters that match a topic (FilterTree), and the filters of one
session that match a topic (FilterSet; MQTT 5 §4.7).

Compiled, because each topic without a remembered route is matched here. A match in the tree walks all nodes
that the topic reaches, level by level. All filters with ``+`` in the same places together cost one node
per level. Only very many arrangements of ``+`` are costly: ``costly_levels`` bounds the nodes that a topic
reaches, and callers refuse filters that would exceed a limit.

Wildcards do not match a first level that begins with ``$`` [MQTT-4.7.2-1]. An invalid filter (``#`` before
the end, wildcards beside other characters) matches no topic.
"""
from gomq_py.mqtt.wire.topics import is_shared, split_shared

# A shifted literal would be a C integer in the compiled module.
_ONE = 1
# The shape key of a filter with more levels is a tuple instead of a number.
_NUMBERED = 40


class FilterNode:
    """A node of the filter tree.

        levels          {level: child node} of the next level, without ``+``
        destinations    destinations of the filter that ends here
        below           destinations of the same filter followed by ``/#``
    """

    # Destinations are {destination: count}, or the only one if it was added once, or None. ``levels`` is the
    # only child if there is one: most nodes have one, and a dict is larger than a node.
    __slots__ = ("level", "levels", "plus", "destinations", "below")

    def __init__(self, level):
        self.level = level
        self.levels = self.plus = self.destinations = self.below = None

    def child(self, level):
        """Return the child node for a level other than ``+``, or None."""
        if self.levels is None:
            return None
        if isinstance(self.levels, dict):
            levels = self.levels
            return levels.get(level)
        only = self.levels
        return only if only.level == level else None

    def is_empty(self):
        return (
            self.levels is None and self.plus is None and self.destinations is None and self.below is None)


class Arrangements:
    """Counts topic filters by their positions of ``+`` and number of levels (a ``#`` at the end not counted).
    ``costly_levels``: upper bound of the nodes that one topic may reach because of ``+``.
    """

    __slots__ = ("costly_levels", "_counts")

    def __init__(self):
        self.costly_levels = 0
        self._counts = {}  # (positions of +, levels before a #): count of filters

    def has_room(self, levels, most):
        """Return whether a new filter of these levels keeps ``costly_levels`` as is or within ``most``."""
        key = _arrangement(levels)
        return key is None or key in self._counts or self.costly_levels + len(levels) <= most

    def count(self, levels, change):
        """Count a filter with these levels as added (``change`` 1) or removed (-1)."""
        key = _arrangement(levels)
        if key is None:
            return
        count = self._counts.get(key, 0) + change
        if not count:
            del self._counts[key]
            self.costly_levels -= len(levels)
        else:
            if key not in self._counts:
                self.costly_levels += len(levels)
            self._counts[key] = count

    def is_empty(self):
        return not self._counts and not self.costly_levels


class FilterTree:
    """Maps topic filters to destinations. ``size``: number of add() calls not undone by remove()."""

    __slots__ = ("root", "size", "arrangements")

    def __init__(self):
        self.root = FilterNode(None)
        self.size = 0
        self.arrangements = Arrangements()

    def add(self, topic_filter, destination):
        """Add a destination of the filter; each addition needs its own ``remove``."""
        levels = levels_of(topic_filter)
        node = self.root
        for level in levels:
            node = _grown(node, level)
        is_below = _is_below(topic_filter)
        there = node.below if is_below else node.destinations
        if there is None:
            self.arrangements.count(levels, 1)
            there = destination
        else:
            there = counts = there if isinstance(there, dict) else {there: 1}
            counts[destination] = counts.get(destination, 0) + 1
        self.size += 1
        _lead(node, is_below, there)

    def remove(self, topic_filter, destination):
        """Undo one ``add`` and drop empty nodes. Does nothing if the destination was not added."""
        levels = levels_of(topic_filter)
        node = self.root
        nodes = [node]
        for level in levels:
            node = node.plus if level == "+" else node.child(level)
            if node is None:
                return
            nodes.append(node)
        is_below = _is_below(topic_filter)
        there = node.below if is_below else node.destinations
        if isinstance(there, dict):
            counts = there
            if destination not in counts:
                return
            self.size -= 1
            if counts[destination] > 1:
                counts[destination] -= 1
                return
            del counts[destination]
            if counts:
                return
        elif there is None or there != destination:
            return
        else:
            self.size -= 1
        _lead(node, is_below, None)
        self.arrangements.count(levels, -1)
        while levels and node.is_empty():
            nodes.pop()
            node = nodes[len(nodes) - 1]
            _cut(node, levels.pop())

    def match(self, topic, targets):
        """Add the destinations of all matching filters to the dict ``targets``, as keys."""
        node = self.root
        # wildcards do not match a first level that begins with $
        may_be_any = topic[:1] != "$"
        if may_be_any and node.below is not None:
            _reach(node.below, targets)
        front = [node]
        for level in topic.split("/"):
            reached = []
            for node in front:
                child = node.child(level)
                if child is not None:
                    if child.below is not None:
                        _reach(child.below, targets)
                    reached.append(child)
                if may_be_any and node.plus is not None:
                    child = node.plus
                    if child.below is not None:
                        _reach(child.below, targets)
                    reached.append(child)
            if not reached:
                return
            front = reached
            may_be_any = True
        for node in front:
            if node.destinations is not None:
                _reach(node.destinations, targets)

    def is_empty(self):
        return self.root.is_empty() and self.arrangements.is_empty()


class Shape:
    """A form that topic filters have in common. ``count``: number of filters of this form.

        pluses      positions of ``+``
        levels      number of levels, without a ``#`` at the end
        is_below    the filters end with ``#``
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
    """The valid filters of one session. Matching a topic costs one lookup per Shape. A shared filter matches
    like the filter after its share name.
    """

    # Filters with the same number of levels, the same positions of ``+`` and the same end (``#`` or not) have
    # one Shape. A topic matches at most one filter of a Shape: match() makes the filter's text from the
    # topic, and looks that text up. Arrangements bounds the number of Shapes.
    __slots__ = ("filters", "shapes", "shared")

    def __init__(self):
        self.filters = set()
        self.shapes = {}
        self.shared = {}  # filter behind a share name: [filters that are shared]

    def add(self, topic_filter):
        if topic_filter in self.filters:
            return
        self.filters.add(topic_filter)
        plain = topic_filter
        if is_shared(topic_filter):
            plain = split_shared(topic_filter)[1]
            self.shared.setdefault(plain, []).append(topic_filter)
        key = _shape_key(plain)
        shape = self.shapes.get(key)
        if shape is None:
            shape = self.shapes[key] = Shape(plain)
        shape.count += 1

    def discard(self, topic_filter):
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
        key = _shape_key(plain)
        shape = self.shapes[key]
        shape.count -= 1
        if shape.count == 0:
            del self.shapes[key]

    def match(self, topic):
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


def _reach(there, targets):
    """Add a node's destinations ``there`` (a dict or a single one) to the dict ``targets``, as keys."""
    if isinstance(there, dict):
        targets.update(there)
    else:
        targets[there] = None


def _lead(node, is_below, there):
    """Set a node's ``below`` (if ``is_below``) or its ``destinations`` to ``there``."""
    if is_below:
        node.below = there
    else:
        node.destinations = there


def _grown(node, level):
    """Return the node's child for a level; create it if missing."""
    child = node.plus if level == "+" else node.child(level)
    if child is None:
        child = FilterNode(level)
        if level == "+":
            node.plus = child
        elif node.levels is None:
            node.levels = child
        else:
            if not isinstance(node.levels, dict):
                only = node.levels
                node.levels = {only.level: only}
            node.levels[level] = child
    return child


def _cut(node, level):
    if level == "+":
        node.plus = None
    elif isinstance(node.levels, dict) and len(node.levels) > 1:
        del node.levels[level]
    else:
        node.levels = None


def levels_of(topic_filter):
    """Split a topic filter into its levels, without a ``#`` at the end."""
    levels = topic_filter.split("/")
    if _is_below(topic_filter):
        levels.pop()
    return levels


def _is_below(topic_filter):
    return topic_filter == "#" or topic_filter.endswith("/#")


def _arrangement(levels):
    """Return (positions of ``+`` as bits of a number, number of levels); None if no level is ``+``."""
    if "+" not in levels:
        return None
    return sum([_ONE << index for index, level in enumerate(levels) if level == "+"]), len(levels)


def _shape_key(topic_filter):
    """Return a key that is equal for filters of one Shape."""
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
    return pluses << 8 | level << 1 | _is_below(topic_filter)
