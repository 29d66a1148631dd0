"""Topic bits: the patterns of a topic exchange as one automaton of bits, for keys that reach very many of a trie's nodes.

Beside topic_trie, which asks it where its walk gets wide: there a word costs a visit to each node that was reached, here a few operations on whole
numbers of as many bits as there are words in all patterns together, some 500 times less each. It is made of the trie's nodes and thrown away when
patterns come or go; the ``destinations`` of the nodes are looked at when they match.

A pattern of n words other than ``#`` has n + 1 neighbouring bits: bit i says that i of them have been found. A ``#`` between two of them lets bit i
stay where it is, whatever word comes.
"""

# Masks of words are kept up to so many octets together: one word of one pattern among 10 000 has a mask of some KiB.
MASK_OCTETS = 4 << 20


class TopicBits:
    """Made of ``patterns``: (words, node), where no two ``#`` are neighbours."""

    def __init__(self, patterns):
        starts, finals, stars, stays = [], [], [], []
        self._places = {}  # word: the bits that it moves on
        self._masks = {}
        self._mask_octets = 0
        self._nodes = {}  # bit of a whole pattern: its node
        at = 0
        for words, node in patterns:
            starts.append(at)
            for word in words:
                if word == "#":
                    stays.append(at)
                    continue
                if word == "*":
                    stars.append(at)
                else:
                    self._places.setdefault(word, []).append(at)
                at += 1
            finals.append(at)
            self._nodes[at] = node
            at += 1
        self._octets = at // 8 + 1
        self._starts, self._finals, self._stars, self._stays = (self._mask(bits) for bits in (starts, finals, stars, stays))

    def match(self, words, targets):
        """Add to the set ``targets`` every destination bound to a pattern that matches these words."""
        here = self._starts
        for word in words:
            here = here & self._stays | (here & self._moved_by(word)) << 1
            if not here:
                return
        here &= self._finals
        for index, octet in enumerate(here.to_bytes(self._octets, "little")):
            bit = 8 * index
            while octet:
                if octet & 1:
                    targets.update(self._nodes[bit].destinations)
                octet >>= 1
                bit += 1

    def _moved_by(self, word):
        """The bits that a word moves on: those that wait for it, and those that wait for any."""
        places = self._places.get(word)
        if places is None:
            return self._stars
        mask = self._masks.get(word)
        if mask is None:
            mask = self._stars | self._mask(places)
            if self._mask_octets > MASK_OCTETS:
                self._masks = {}
                self._mask_octets = 0
            self._masks[word] = mask
            self._mask_octets += self._octets
        return mask

    def _mask(self, bits):
        """The number that has these bits."""
        octets = bytearray(self._octets)
        for bit in bits:
            octets[bit >> 3] |= 1 << (bit & 7)
        return int.from_bytes(octets, "little")
