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
    {destination: how often}, or None.
    """

    __slots__ = ("parent", "level", "levels", "plus", "destinations", "below")

    def __init__(self, parent, level):
        self.parent = parent
        self.level = level
        self.levels = self.plus = self.destinations = self.below = None


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
        self.root = FilterNode(None, None)
        self.size = 0
        self.arrangements = Arrangements()

    def add(self, topic_filter, destination):
        """Let the filter lead to a destination; once more counts."""
        levels = levels_of(topic_filter)
        is_below = _is_below(topic_filter)
        node = self.root
        for level in levels:
            node = self._child(node, level)
        if is_below:
            destinations = node.below
            if destinations is None:
                destinations = node.below = {}
        else:
            destinations = node.destinations
            if destinations is None:
                destinations = node.destinations = {}
        if not destinations:
            self.arrangements.count(levels, 1)
        destinations[destination] = destinations.get(destination, 0) + 1
        self.size += 1

    def remove(self, topic_filter, destination):
        """Take back one ``add``; nodes that lead nowhere go. Nothing where there is none to take back."""
        levels = levels_of(topic_filter)
        is_below = _is_below(topic_filter)
        node = self._node(levels)
        if node is None:
            return
        destinations = node.below if is_below else node.destinations
        if destinations is None or destination not in destinations:
            return
        count = destinations[destination] - 1
        self.size -= 1
        if count:
            destinations[destination] = count
            return
        del destinations[destination]
        if destinations:
            return
        if is_below:
            node.below = None
        else:
            node.destinations = None
        self.arrangements.count(levels, -1)
        self._prune(node)

    def match(self, topic, targets):
        """Add to the set ``targets`` every destination of a filter that matches the topic."""
        node = self.root
        # a first level with $ is neither + nor below #
        may_be_any = topic[:1] != "$"
        if may_be_any and node.below is not None:
            targets.update(node.below)
        front = [node]
        for level in topic.split("/"):
            reached = []
            for node in front:
                if node.levels is not None:
                    child = node.levels.get(level)
                    if child is not None:
                        if child.below is not None:
                            targets.update(child.below)
                        reached.append(child)
                if may_be_any and node.plus is not None:
                    child = node.plus
                    if child.below is not None:
                        targets.update(child.below)
                    reached.append(child)
            if not reached:
                return
            front = reached
            may_be_any = True
        for node in front:
            if node.destinations is not None:
                targets.update(node.destinations)

    def is_empty(self):
        """Whether no filter, and no node of one, is left."""
        root = self.root
        return (
            root.levels is None and root.plus is None and root.destinations is None and root.below is None
            and self.arrangements.is_empty()
        )

    def _node(self, levels):
        """Where these levels lead, or None."""
        node = self.root
        for level in levels:
            if level == "+":
                node = node.plus
            else:
                node = None if node.levels is None else node.levels.get(level)
            if node is None:
                break
        return node

    def _child(self, node, level):
        if level == "+":
            if node.plus is None:
                node.plus = FilterNode(node, level)
            return node.plus
        if node.levels is None:
            node.levels = {}
        child = node.levels.get(level)
        if child is None:
            child = node.levels[level] = FilterNode(node, level)
        return child

    def _prune(self, node):
        while (
            node.parent is not None and node.destinations is None and node.below is None
            and node.levels is None and node.plus is None
        ):
            parent = node.parent
            if node.level == "+":
                parent.plus = None
            else:
                del parent.levels[node.level]
                if not parent.levels:
                    parent.levels = None
            node.parent = None
            node = parent


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
