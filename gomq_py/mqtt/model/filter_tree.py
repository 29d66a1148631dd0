"""Filter tree: topic filters to destinations. Levels between slashes, ``+`` for exactly one level, ``#`` at
the end for any number of them, none included (MQTT 5 §4.7).

A leaf of mqtt.model, below exchange; compiled, because each topic that is not remembered is matched here.

Filters live in a tree of levels. A topic is matched by walking all the nodes that it can reach at once, one
level at a time. A node has one parent and so is reached once; of the filters with their ``+`` in the same
places a topic reaches one node per level, however many they are. So what can be costly is a tree with very
many arrangements of ``+``: their ``costly_levels`` bound how many nodes a topic reaches, and whoever adds
filters for clients refuses what makes that too many. A first level that begins with ``$`` is matched by
itself alone [MQTT-4.7.2-1].

What is no filter (a ``#`` before the end, wildcards beside other characters) stands for itself, and so
matches no topic.
"""
# Shifted instead of the literal, which would be a C integer in the compiled module.
_ONE = 1


class FilterNode:
    """A position in some filters: which levels may follow, and whose filters end here.

    ``destinations`` of the filter that ends here, ``below`` of the one that goes on with ``#``; each is
    {destination: how often}, or the only destination, added once, or None. ``levels`` is {level: node}, or
    the only node, or None: most nodes have one of each, and a dict is larger than a node.
    """

    __slots__ = ("level", "levels", "plus", "destinations", "below")

    def __init__(self, level):
        self.level = level
        self.levels = self.plus = self.destinations = self.below = None

    def child(self, level):
        """The node of a level that is not ``+``, or None."""
        if self.levels is None:
            return None
        if isinstance(self.levels, dict):
            levels = self.levels
            return levels.get(level)
        only = self.levels
        return only if only.level == level else None

    def is_empty(self):
        """Whether it leads nowhere."""
        return (
            self.levels is None and self.plus is None and self.destinations is None and self.below is None)


class Arrangements:
    """Where some filters have their ``+``. ``costly_levels``: the most nodes that a topic may reach on their
    way. Filters are told as levels_of() them.
    """

    __slots__ = ("costly_levels", "_counts")

    def __init__(self):
        self.costly_levels = 0
        self._counts = {}  # (where + are, levels before a #): how many filters

    def has_room(self, levels, most):
        """Whether ``costly_levels`` stays as it is with one more filter, or is ``most`` at the most."""
        key = _arrangement(levels)
        return key is None or key in self._counts or self.costly_levels + len(levels) <= most

    def count(self, levels, change):
        """Count a filter that has come (1) or gone (-1)."""
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
        """Whether no filter is counted."""
        return not self._counts and not self.costly_levels


class FilterTree:
    """Topic filters to destinations. ``size``: how many there are, each as often as it was added.

    ``arrangements``: their Arrangements.
    """

    __slots__ = ("root", "size", "arrangements")

    def __init__(self):
        self.root = FilterNode(None)
        self.size = 0
        self.arrangements = Arrangements()

    def add(self, topic_filter, destination):
        """Let the filter lead to a destination; once more counts."""
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
        """Take back one ``add``; nodes that lead nowhere go. Nothing where there is none to take back."""
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
        """Add to the dict ``targets``, as keys, every destination of a filter that matches the topic."""
        node = self.root
        # a first level with $ is neither + nor below #
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
        """Whether no filter, and no node of one, is left."""
        return self.root.is_empty() and self.arrangements.is_empty()


def _reach(there, targets):
    """Add what is at a node to the keys of a dict."""
    if isinstance(there, dict):
        targets.update(there)
    else:
        targets[there] = None


def _lead(node, is_below, there):
    """Have a node lead there."""
    if is_below:
        node.below = there
    else:
        node.destinations = there


def _grown(node, level):
    """The node of a level behind another one, which is made where there is none."""
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
    """Take out the node of a level behind another one."""
    if level == "+":
        node.plus = None
    elif isinstance(node.levels, dict) and len(node.levels) > 1:
        del node.levels[level]
    else:
        node.levels = None


def levels_of(topic_filter):
    """The levels of a filter, without ``#`` at its end."""
    levels = topic_filter.split("/")
    if _is_below(topic_filter):
        levels.pop()
    return levels


def _is_below(topic_filter):
    """Whether the last level of a filter is ``#``."""
    return topic_filter == "#" or topic_filter.endswith("/#")


def _arrangement(levels):
    """Where a filter has its ``+``, as a number, and how many levels it has; None where it has none."""
    if "+" not in levels:
        return None
    return sum([_ONE << index for index, level in enumerate(levels) if level == "+"]), len(levels)
