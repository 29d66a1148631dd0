"""Topic bits: matches the topic patterns that most keys reach at most of their words, by automata of bits.

Beside topic_trie, which decides where a pattern goes, and walks a few such patterns itself: there a word
costs a visit to each reached node, here a few operations on an integer per shard of some thousand words.
Patterns are added to a shard as they are bound; a shard is rebuilt when more than half of it has been
removed, so no change costs more than one shard.

A pattern of n words other than ``#`` has n + 1 adjacent bits: bit i means that i words have been found. A
``#`` between two words lets bit i stay, whatever the key's next word.
"""

# Bits of a shard: a rebuild takes 1 to 2 ms. Smaller shards slow down matching, as each costs a few
# operations per word of the key.
SHARD_BITS = 4096
# A variable, because in the compiled module a shifted literal would be a C integer.
_ONE = 1


class TopicShards:
    """Patterns to destinations, like a TopicTrie. ``words``: of all patterns; ``rebuilt``: bits rebuilt."""

    __slots__ = ("words", "rebuilt", "_shards", "_room", "_homes")

    def __init__(self):
        self.words = self.rebuilt = 0
        self._shards = {}  # as an ordered set
        self._room = {}  # shards that may have room; the last one is filled
        self._homes = {}  # pattern (folded words): its shard

    def destinations_of(self, pattern):
        """The dict of destinations of a pattern, or None."""
        shard = self._homes.get(pattern)
        return None if shard is None else shard.destinations_of(pattern)

    def add(self, pattern, words):
        """Add a new pattern. Returns its destinations: an empty dict, which the caller fills."""
        shard = self._with_room(len(words))
        self._homes[pattern] = shard
        self.words += len(words)
        destinations = {}
        shard.add(pattern, words, destinations)
        return destinations

    def remove(self, pattern, words):
        """Remove an existing pattern."""
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
        """Add the destinations of all patterns that match these words to the dict ``targets``, as keys."""
        for shard in self._shards:
            shard.match(words, targets)

    def shard_count(self):
        """The number of shards."""
        return len(self._shards)

    def _with_room(self, count):
        """A shard with room for ``count`` words. Shards with less room are not asked again before a rebuild.
        """
        while self._room:
            shard = next(reversed(self._room))
            if shard.used + count <= SHARD_BITS:
                return shard
            del self._room[shard]
        shard = TopicBits()
        self._shards[shard] = self._room[shard] = None
        return shard


class TopicBits:
    """One shard. ``used`` bits, of which ``dead`` belong to removed patterns and are never set."""

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
        """The destinations of an existing pattern."""
        return self.patterns[pattern][2]

    def add(self, pattern, words, destinations):
        """Add a pattern without two adjacent ``#``."""
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
        """Remove a pattern; its bits stay dead until the rebuild."""
        words, start, _ = self.patterns.pop(pattern)
        length = len(words) - words.count("#") + 1
        self._starts ^= _ONE << start
        self._ends[start + length - 1] = None
        self.dead += length

    def rebuild(self):
        """Rebuild the shard from its patterns. Returns the number of their bits."""
        left = self.patterns
        self.patterns = {}
        self._clear()
        for pattern, (words, _, destinations) in left.items():
            self.add(pattern, words, destinations)
        return self.used

    def match(self, words, targets):
        """Add the destinations of all patterns that match these words to the dict ``targets``, as keys."""
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
