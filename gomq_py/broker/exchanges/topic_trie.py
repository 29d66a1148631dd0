"""Topic trie: finds the patterns of a topic exchange that match a key.

A pattern has words between dots, ``*`` for exactly one word, ``#`` for any number of words (AMQP 0-9-1
§3.1.3.3). The empty key has no words: ``#`` matches it, ``*`` does not. A dot at either end of a key adds an
empty word.

A match walks a trie of the patterns, word by word, and visits each node that the key reaches. Patterns with
``*`` in the same positions cost little, however many they are. Patterns with words after a ``#``, or with
``*`` in unusual positions, cost more, because most keys reach most of their nodes. The trie takes a limited
number of these; the others go into shards (TopicShards).

A shard is a bit-parallel automaton of some thousand words, which does a few operations on an integer for each
word of the key. A pattern with n words besides ``#`` has n + 1 adjacent bits; a set bit i means that i of its
words have been found. A ``#`` after word i keeps bit i set, whatever word of the key comes next. A shard is
rebuilt when more than half of its bits belong to removed patterns.
"""

# Most walked words of patterns with words behind a ``#``: a key of 128 words then costs at most 1 ms, and an
# ordinary key less than with bits.
WALKED = 512
# Most arrangements of ``*`` that are walked: patterns of seven words have no more.
ARRANGEMENTS = 128
# Bits of a shard: a rebuild takes 1 to 2 ms. Smaller shards make matching slower, as each costs the same few
# operations per word.
SHARD_BITS = 4096
# Shifted instead of the literal, which would be a C integer in the compiled module.
_ONE = 1


class TopicNode:
    """A node of the trie: its children by word, and the destinations of the pattern that ends here. ``seen``:
    number of the match step that last visited the node.
    """

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
    """Maps topic patterns to destinations. ``walked``: sum of hash_words() of the patterns outside shards."""

    __slots__ = ("root", "step", "size", "walked", "arrangements", "shards")

    def __init__(self):
        self.root = TopicNode(None, None)
        self.step = 0
        self.size = 0
        self.walked = 0
        # arrangement of *: count of walked patterns with it, without those that have words behind a #
        self.arrangements = {}
        self.shards = TopicShards()

    def add(self, pattern, destination):
        """Bind a destination to a pattern. A binding added n times must be removed n times."""
        words = folded(pattern)
        destinations = self.destinations_of(words)
        if destinations is None:
            destinations = self._added(words)
        destinations[destination] = destinations.get(destination, 0) + 1
        self.size += 1

    def remove(self, pattern, destination):
        words = folded(pattern)
        destinations = self.destinations_of(words)
        destinations[destination] -= 1
        if not destinations[destination]:
            del destinations[destination]
            if not destinations:
                self._removed(words)
        self.size -= 1

    def destinations_of(self, words):
        """Return {destination: count of bindings} of a pattern in folded() words; None if it is not bound."""
        if self.shards.words:
            destinations = self.shards.destinations_of(".".join(words))
            if destinations is not None:
                return destinations
        node = self._node(words)
        return None if node is None else node.destinations

    def costly_words(self):
        """Count the words in slow patterns: patterns in shards, and patterns whose ``#`` is not last."""
        return self.walked + self.shards.words

    def costly_words_added(self, pattern):
        """Return how much ``costly_words()`` would grow by this pattern; 0 if it is bound already."""
        words = folded(pattern)
        is_costly = hash_words(words) or not self._may_be_walked(words)
        return len(words) if is_costly and self.destinations_of(words) is None else 0

    def _may_be_walked(self, words):
        count = hash_words(words)
        if count:
            return self.walked + count <= WALKED
        stars = arrangement(words)
        return not stars or stars in self.arrangements or len(self.arrangements) < ARRANGEMENTS

    def _added(self, words):
        """Add a pattern. Returns the new, empty dict of its destinations, which the caller fills."""
        if not self._may_be_walked(words):
            return self.shards.add(".".join(words), words)
        self._count_walked(words, 1)
        node = self.root
        for word in words:
            node = self._child(node, word)
        node.destinations = {}
        return node.destinations

    def _removed(self, words):
        pattern = ".".join(words)
        if self.shards.destinations_of(pattern) is not None:
            self.shards.remove(pattern, words)
            return
        self._count_walked(words, -1)
        node = self._node(words)
        node.destinations = None
        self._prune(node)

    def _count_walked(self, words, one):
        count = hash_words(words)
        stars = 0 if count else arrangement(words)
        self.walked += one * count
        if stars:
            patterns = self.arrangements.pop(stars, 0) + one
            if patterns:
                self.arrangements[stars] = patterns

    def _node(self, words):
        node = self.root
        for word in words:
            node = node.star if word == "*" else node.hash if word == "#" else node.words.get(word)
            if node is None:
                return None
        return node

    def match(self, key, targets):
        """Add to the dict ``targets``, as its keys, the destinations of all patterns that match ``key``."""
        words = split_key(key)
        if self.shards.words:
            self.shards.match(words, targets)
        self.step += 1
        front = []
        self._enter(self.root, front, targets)
        for word in words:
            self.step += 1
            reached = []
            for node in front:
                if node.is_hash:
                    self._enter(node, reached, targets)
                if node.words:
                    child = node.words.get(word)
                    if child is not None:
                        self._enter(child, reached, targets)
                if node.star is not None:
                    self._enter(node.star, reached, targets)
            if not reached:
                return
            front = reached
        for node in front:
            if node.destinations is not None:
                targets.update(node.destinations)

    def is_empty(self):
        root = self.root
        return (
            not self.shards.words and not root.words and root.star is None and root.hash is None
            and root.destinations is None
        )

    def _enter(self, node, front, targets):
        while node is not None and node.seen != self.step:
            node.seen = self.step
            if node.is_hash and not node.words and node.star is None:
                targets.update(node.destinations)  # a final # matches any rest
                return
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
        while (
            node.parent is not None and node.destinations is None and not node.words and node.star is None
            and node.hash is None
        ):
            parent = node.parent
            if node.word == "*":
                parent.star = None
            elif node.word == "#":
                parent.hash = None
            else:
                del parent.words[node.word]
            node = parent


def split_key(key):
    """Split a key or pattern into its words; the empty key has none."""
    return key.split(".") if key else []


def folded(pattern):
    """Split a pattern into words, with adjacent wildcards in one order: every ``*``, then one ``#``."""
    # This prevents long chains of ``#`` and duplicate nodes for equivalent patterns.
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


def hash_words(words):
    """Return the number of words of a folded pattern with a ``#`` before its last word; 0 for others."""
    return len(words) if "#" in words and words.index("#") < len(words) - 1 else 0


def arrangement(words):
    """Return the positions of ``*`` in a pattern as a bit mask; 0 without ``*``."""
    if "*" not in words:
        return 0
    return sum([_ONE << index for index, word in enumerate(words) if word == "*"])


class TopicShards:
    """The shards (automata): they contain the patterns that are too slow for the trie. ``words``: count of
    words in all patterns here; ``rebuilt``: count of bits set up by all rebuilds.
    """

    __slots__ = ("words", "rebuilt", "_shards", "_room", "_homes")

    def __init__(self):
        self.words = self.rebuilt = 0
        self._shards = {}  # as an ordered set
        self._room = {}  # shards that may have room; the last one is filled
        self._homes = {}  # pattern (folded words): its shard

    def destinations_of(self, pattern):
        """Return {destination: count of bindings} of a pattern; None if no shard has the pattern."""
        shard = self._homes.get(pattern)
        return None if shard is None else shard.destinations_of(pattern)

    def add(self, pattern, words):
        shard = self._with_room(len(words))
        self._homes[pattern] = shard
        self.words += len(words)
        destinations = {}
        shard.add(pattern, words, destinations)
        return destinations

    def remove(self, pattern, words):
        shard = self._homes.pop(pattern)
        self.words -= len(words)
        shard.remove(pattern)
        if not shard.patterns:
            del self._shards[shard]
            self._room.pop(shard, None)
        elif 2 * shard.dead > shard.used:
            self.rebuilt += shard.rebuild()
            self._room[shard] = None

    def match(self, words, targets):
        for shard in self._shards:
            shard.match(words, targets)

    def shard_count(self):
        return len(self._shards)

    def _with_room(self, count):
        while self._room:
            shard = next(reversed(self._room))
            if shard.used + count <= SHARD_BITS:
                return shard
            del self._room[shard]
        shard = TopicBits()
        self._shards[shard] = self._room[shard] = None
        return shard


class TopicBits:
    """One shard: a bit-parallel automaton that matches its patterns against a key. ``used``: count of its
    bits; ``dead``: count of bits that belong to removed patterns.
    """

    __slots__ = ("used", "dead", "patterns", "_starts", "_finals", "_stars", "_stays", "_moves", "_ends")

    def __init__(self):
        self.patterns = {}  # pattern: (its words, its first bit, its destinations)
        self._clear()

    def _clear(self):
        self.used = self.dead = 0
        self._starts = self._finals = self._stars = self._stays = 0
        self._moves = {}  # word: the bits that it advances
        self._ends = []  # by bit: the destinations of the pattern that is complete there, or None

    def destinations_of(self, pattern):
        return self.patterns[pattern][2]

    def add(self, pattern, words, destinations):
        """Add a folded() pattern with its dict of destinations. The shard must have free bits for it."""
        at = self.used
        self.patterns[pattern] = (words, at, destinations)
        self._starts |= _ONE << at
        for word in words:
            bit = _ONE << at
            if word == "#":
                self._stays |= bit
                continue
            if word == "*":
                self._stars |= bit
            else:
                self._moves[word] = self._moves.get(word, 0) | bit
            self._ends.append(None)
            at += 1
        self._finals |= _ONE << at
        self._ends.append(destinations)
        self.used = at + 1

    def remove(self, pattern):
        """Remove a pattern. Its bits count as ``dead`` until the next rebuild."""
        words, start, _ = self.patterns.pop(pattern)
        length = len(words) - words.count("#") + 1
        self._starts ^= _ONE << start
        self._ends[start + length - 1] = None
        self.dead += length

    def rebuild(self):
        """Rebuild the shard without dead bits. Returns the number of bits of its patterns."""
        left = self.patterns
        self.patterns = {}
        self._clear()
        for pattern, (words, _, destinations) in left.items():
            self.add(pattern, words, destinations)
        return self.used

    def match(self, words, targets):
        here = self._starts
        stars, stays, moves = self._stars, self._stays, self._moves
        for word in words:
            moved = moves.get(word)
            here = here & stays | (here & (stars if moved is None else stars | moved)) << 1
            if not here:
                return
        here = here & self._finals
        if not here:
            return
        octets = here.to_bytes((self.used >> 3) + 1, "little")
        bit = 0
        for octet in octets:
            at = bit
            while octet:
                if octet & 1:
                    targets.update(self._ends[at])
                octet >>= 1
                at += 1
            bit += 8
