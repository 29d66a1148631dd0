"""Topic trie: the patterns of a topic exchange. Words between dots, ``*`` for exactly one word, ``#`` for any number of them (AMQP 0-9-1 §3.1.3.3).

Patterns live in a trie of words. A key is matched by walking all the nodes it can reach at once, one word at a time, each node at most once per word:
the time is bounded by words times nodes however many ``#`` the patterns hold, and in practice by the few nodes that share the key's words. Where they
are not few, as a publisher may choose with patterns of many ``#``, topic_bits takes over. The empty key has no words, so that ``#`` matches it and
``*`` does not; a dot at either end adds an empty word.
"""
from gomq_py.broker.exchanges.topic_bits import TopicBits

# Nodes visited for one key before it counts as wide: some 20 us.
WIDE = 1500
# Visits that making the automaton of bits costs for each pattern: it is made when wide keys have cost as much since patterns last came or went.
BUILT_FOR = 50


class TopicNode:
    """A position in some patterns: what may follow, and who is bound to the pattern that ends here. ``seen`` is the last step that came by."""

    __slots__ = ("parent", "word", "words", "star", "hash", "is_hash", "destinations", "seen")

    def __init__(self, parent, word):
        self.parent = parent
        self.word = word
        self.words = {}
        self.star = self.hash = None
        self.is_hash = word == "#"
        self.destinations = None
        self.seen = 0


class TopicTrie:
    """Patterns to destinations. ``match`` is the compiled part of routing."""

    __slots__ = ("root", "step", "size", "bits", "wide")

    def __init__(self):
        self.root = TopicNode(None, None)
        self.step = 0
        self.size = 0
        self.bits = None
        self.wide = 0  # visits for wide keys while there were no bits

    def add(self, pattern, destination):
        """Bind a destination to a pattern; once more counts."""
        node = self.root
        for word in folded(pattern):
            node = self._child(node, word)
        if node.destinations is None:
            node.destinations = {}
            self.bits = None
            self.wide = 0
        node.destinations[destination] = node.destinations.get(destination, 0) + 1
        self.size += 1

    def remove(self, pattern, destination):
        """Take back one ``add``; nodes that lead nowhere go."""
        node = self.root
        for word in folded(pattern):
            node = node.star if word == "*" else node.hash if word == "#" else node.words[word]
        count = node.destinations[destination] - 1
        if count:
            node.destinations[destination] = count
        else:
            del node.destinations[destination]
            if not node.destinations:
                node.destinations = None
                self._prune(node)
                self.bits = None
                self.wide = 0
        self.size -= 1

    def match(self, key, targets):
        """Add to the set ``targets`` every destination bound to a pattern that matches the key."""
        self.step += 1
        front = []
        self._enter(self.root, front)
        words = split_key(key)
        visits = 0
        for word in words:
            self.step += 1
            reached = []
            for node in front:
                if node.is_hash:
                    self._enter(node, reached)
                if node.words:
                    child = node.words.get(word)
                    if child is not None:
                        self._enter(child, reached)
                if node.star is not None:
                    self._enter(node.star, reached)
            if not reached:
                return
            front = reached
            visits += len(front)
            if visits > WIDE and self._has_bits(len(front)):
                self.bits.match(words, targets)
                return
        for node in front:
            if node.destinations is not None:
                targets.update(node.destinations)

    def is_empty(self):
        """Whether not even a node is left."""
        return not self.root.words and self.root.star is None and self.root.hash is None and self.root.destinations is None

    def _has_bits(self, visits):
        """Whether there is an automaton of bits; it is made when wide keys have cost enough."""
        if self.bits is None:
            self.wide += visits
            if self.wide < BUILT_FOR * self.size:
                return False
            self.bits = TopicBits(self.patterns())
        return True

    def patterns(self):
        """(words, node) of every pattern."""
        found = []
        ahead = [self.root]
        while ahead:
            node = ahead.pop()
            if node.destinations is not None:
                found.append((self._words_to(node), node))
            for child in (node.star, node.hash, *node.words.values()):
                if child is not None:
                    ahead.append(child)
        return found

    def _words_to(self, node):
        """The words of the pattern that ends at a node."""
        words = []
        while node.parent is not None:
            words.append(node.word)
            node = node.parent
        words.reverse()
        return words

    def _enter(self, node, front):
        """Put the node into the front, and the ``#`` behind it, which may match no word at all; each once per step."""
        while node is not None and node.seen != self.step:
            node.seen = self.step
            front.append(node)
            node = node.hash

    def _child(self, node, word):
        if word == "*":
            if node.star is None:
                node.star = TopicNode(node, word)
            return node.star
        if word == "#":
            if node.hash is None:
                node.hash = TopicNode(node, word)
            return node.hash
        child = node.words.get(word)
        if child is None:
            child = node.words[word] = TopicNode(node, word)
        return child

    def _prune(self, node):
        while node.parent is not None and node.destinations is None and not node.words and node.star is None and node.hash is None:
            parent = node.parent
            if node.word == "*":
                parent.star = None
            elif node.word == "#":
                parent.hash = None
            else:
                del parent.words[node.word]
            node = parent


def split_key(key):
    """The words of a key or pattern."""
    return key.split(".") if key else []


def folded(pattern):
    """The words of a pattern, with wildcards that are neighbours in one order: every ``*``, then one ``#``, which matches the same keys.

    It keeps a pattern of many ``#`` from making a long chain, and patterns that mean the same from having nodes of their own.
    """
    words = []
    has_hash = False
    for word in split_key(pattern):
        if word == "#":
            has_hash = True
            continue
        if has_hash and word != "*":
            words.append("#")
            has_hash = False
        words.append(word)
    if has_hash:
        words.append("#")
    return words
