"""Topic bits: patterns of a topic exchange that keys reach at most of their words, as automata of bits.

Beside topic_trie, which walks a few such patterns itself and says which they are: there a word costs a visit
to each node that was reached. Here a word costs a few operations on a whole number for each shard, which
holds some thousands of words. Patterns are added to a shard as they are bound; a shard of which more than
half has been removed is made anew, so that no change costs more than one shard.

A pattern of n words other than ``#`` has n + 1 neighbouring bits: bit i says that i of them have been found.
A ``#`` between two of them lets bit i stay where it is, whatever word comes.
"""

# Bits of a shard: making one anew takes 1 to 2 ms. Smaller ones make matching slower, as each costs the same
# few operations per word.
SHARD_BITS = 4096
# Shifted instead of the literal, which would be a C integer in the compiled module.
_ONE = 1


class TopicShards:
    """Patterns to destinations, as a TopicTrie. ``words`` of all patterns together; ``rebuilt``: bits of all
    the shards that were made anew.
    """

    __slots__ = ("words", "rebuilt", "_shards", "_room", "_homes")

    def __init__(self):
        self.words = self.rebuilt = 0
        self._shards = {}  # as an ordered set
        self._room = {}  # those of them that may have room; the last one is filled
        self._homes = {}  # pattern, of folded words: its shard

    def find(self, pattern):
        """The destinations of a pattern, None where it is not here."""
        shard = self._homes.get(pattern)
        return None if shard is None else shard.destinations_of(pattern)

    def add(self, pattern, words):
        """Add a pattern that is not here. Returns its destinations: an empty dict, which the caller fills."""
        shard = self._with_room(len(words))
        self._homes[pattern] = shard
        self.words += len(words)
        destinations = {}
        shard.add(pattern, words, destinations)
        return destinations

    def remove(self, pattern, words):
        """Remove a pattern that is here."""
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
        """Add to the dict ``targets``, as keys, every destination of a pattern that matches these words."""
        for shard in self._shards:
            shard.match(words, targets)

    def shard_count(self):
        """How many shards there are."""
        return len(self._shards)

    def _with_room(self, count):
        """A shard for a pattern of so many words; a shard that has too little room is not asked again before
        it is made anew.
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
    """One shard. ``used`` bits, of which ``dead`` belong to patterns that were removed: nothing sets those
    any more.
    """

    __slots__ = ("used", "dead", "patterns", "_starts", "_finals", "_stars", "_stays", "_moves", "_ends")

    def __init__(self):
        self.patterns = {}  # pattern: (its words, its first bit, its destinations)
        self._clear()

    def _clear(self):
        self.used = self.dead = 0
        self._starts = self._finals = self._stars = self._stays = 0
        self._moves = {}  # word: the bits that it moves on
        self._ends = []  # by bit: the destinations of the pattern that is whole there, else None

    def destinations_of(self, pattern):
        """The destinations of a pattern that is here."""
        return self.patterns[pattern][2]

    def add(self, pattern, words, destinations):
        """Add a pattern; no two ``#`` of its words are neighbours."""
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
        """Let a pattern begin no more; its bits stay until the shard is made anew."""
        words, start, _ = self.patterns.pop(pattern)
        length = len(words) - words.count("#") + 1
        self._starts ^= _ONE << start
        self._ends[start + length - 1] = None
        self.dead += length

    def rebuild(self):
        """Make the shard anew of the patterns that are left. Returns how many bits they have."""
        left = self.patterns
        self.patterns = {}
        self._clear()
        for pattern, (words, _, destinations) in left.items():
            self.add(pattern, words, destinations)
        return self.used

    def match(self, words, targets):
        """Add to the dict ``targets``, as keys, every destination of a pattern that matches these words."""
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
