"""Queue lines: the JSON of many queues, as ``shapes.queue`` has it, written straight from their counters.

A list of 20 000 queues is 30 MB of JSON, nearly all of it the same for each. Between what is of the queue
alone (its head, which is kept with its rates) and its figures lie texts that a Template finds by having
``shapes.queue_figures`` written with marks in place of figures; so the shape stands in one place. What is
rare is written from the object as everywhere else: queues that are closed, paused or of a connection, and
those with messages set aside or with consumers that are named. Nothing is kept of the figures: what is
written is true then.
"""
import re
from weakref import ref

import orjson

from gomq_py import octets
from gomq_py.http import shapes, statistics
from gomq_py.http.answers import WRITTEN_OCTETS, json_octets, node
from gomq_py.http.rates import LEAST_WINDOW_S, View
from gomq_py.hub.turns import paced

# Queues that are written between two looks at the clock: some 50 us, or 1 ms where all are rare.
QUEUES_LOOK = 40
# Octets behind the last of a part: a queue of a long name and with many arguments is written from its object.
ROOM = 16 * 1024
# Of one figure, with the text in front of it: 20 digits of a counter, or a rate.
_FIGURE_ROOM = 32
# Marks of a template, which is told from the digits of everything else in it.
_COUNT_MARK, _RATE_MARK = 8_700_000_000_000_000_000, 870_000_000.5
_MARKS = re.compile(rb"8700000000000000(\d{3})|870000(\d{3})\.5")
# Numbers of the figures: those of shapes.QUEUE_FACTS, the counters of statistics.QUEUE and their rates.
_FACTS = len(shapes.QUEUE_FACTS)
_RATES = _FACTS + len(statistics.QUEUE.names)
_FIGURES = _RATES + len(statistics.QUEUE.names)
_COUNTED_AT, _COUNTED_OCTETS = 8 * _FACTS, 8 * (_RATES - _FACTS)


class Template:
    """The texts between the figures of a queue: ``text`` is all of them, ``slots`` of each how long it is and
    the number of the figure behind it, as little-endian numbers of 32 bits; behind the last is none.

    ``room``: octets that it takes with its figures, at most.
    """

    __slots__ = ("text", "slots", "slot_count", "room")

    def __init__(self, has_consumers):
        facts = [_COUNT_MARK + number for number in range(_FACTS)]
        if not has_consumers:
            facts[shapes.QUEUE_FACTS.index("consumers")] = 0
        counted = range(len(statistics.QUEUE.names))
        view = View(
            statistics.QUEUE, [_COUNT_MARK + _FACTS + number for number in counted],
            [_RATE_MARK + number for number in counted], None, None)
        written = b"," + json_octets(shapes.queue_figures(facts, view))[1:]
        texts, slots, at = [], bytearray(), 0
        for mark in _MARKS.finditer(written):
            number = int(mark[1]) if mark[1] else _RATES + int(mark[2])
            slots += (mark.start() - at).to_bytes(4, "little") + number.to_bytes(4, "little")
            texts.append(written[at:mark.start()])
            at = mark.end()
        slots += (len(written) - at).to_bytes(4, "little") + _FIGURES.to_bytes(4, "little")
        texts.append(written[at:])
        self.slot_count = len(texts)
        self.text = b"".join(texts)
        self.slots = bytes(slots)
        self.room = len(self.text) + _FIGURE_ROOM * self.slot_count


_templates: list = []  # of queues without consumers and with some, once somebody lists many


class QueueLines:
    """Writes queues as elements of a JSON array: ``parts`` are octets, with commas between the elements."""

    __slots__ = (
        "parts", "count", "_rates", "_looks", "_vhosts", "_part_octets", "_idle", "_busy", "_out", "_at",
        "_figures",
    )

    def __init__(self, rates, vhosts, part_octets=WRITTEN_OCTETS):
        """``rates`` is the node's, ``vhosts`` its dict of them."""
        if not _templates:
            _templates.extend((Template(False), Template(True)))
        self._idle, self._busy = _templates
        self.parts = []
        self.count = 0
        self._rates = rates
        self._looks = None
        self._vhosts = vhosts
        self._part_octets = part_octets
        self._out = bytearray(part_octets + ROOM + 1)
        self._at = 0
        self._figures = bytearray(8 * _RATES)

    def write(self, rows):
        """Those of these queues that are there now."""
        now_s = self._rates.now_s()
        self._looks = self._rates.looks_of(statistics.QUEUE)  # all may have been forgotten
        vhost, queues = None, {}
        for row in rows:
            if row.vhost != vhost:
                vhost = row.vhost
                there = self._vhosts.get(vhost)
                queues = {} if there is None else there.queues
            queue = queues.get(row.name)
            if queue is None:
                continue
            if self.count:
                self._out[self._at] = 44  # a comma
                self._at += 1
            self.count += 1
            if not self._write_plain(queue, now_s):
                self._write_object(json_octets(shapes.queue(queue)))
            if self._at >= self._part_octets:
                self._hand_over()

    def end(self):
        """All is written. Returns the parts."""
        self._hand_over()
        return self.parts

    def _write_object(self, element):
        if len(element) >= ROOM:
            self._hand_over()
            self.parts.append(element)
        else:
            octets.copy(octets.pointer(self._out), self._at, octets.pointer(element), 0, len(element))
            self._at += len(element)

    def _hand_over(self):
        if self._at:
            with memoryview(self._out) as written:
                self.parts.append(bytes(written[:self._at]))
        self._at = 0

    def _write_plain(self, queue, now_s):
        """Write a queue that is nothing special. False: it is, and nothing was written."""
        if (
            queue.closed or queue.paused or queue.exclusive_owner is not None or queue.aside is not None
            or queue.store is None
        ):
            return False
        ring, consumers = queue.ring, 0
        if ring is not None:
            consumers = len(ring.consumers)
            if consumers and (ring.single_active or _is_exclusive(ring.consumers)):
                return False
        figures = octets.pointer(self._figures)
        self._read(queue, consumers, figures)
        look = self._looks.get(ref(queue))
        if look is None or now_s - look.at >= LEAST_WINDOW_S:
            if look is not None and look.counted is not None and octets.same(
                    figures, _COUNTED_AT, octets.pointer(look.counted), 0, _COUNTED_OCTETS):
                look.at = now_s  # as it was at the last look: its rates are still 0
            else:
                look = self._looked_at(queue)
                if look is None:
                    return False
        head = look.head
        if look.in_force is not queue.in_force:
            head = json_octets(shapes.queue_head(queue))
            head = look.head = head[:len(head) - 1]
            look.in_force = queue.in_force
        template = self._busy if consumers else self._idle
        if len(head) + template.room > ROOM:
            return False
        octets.copy(octets.pointer(self._out), self._at, octets.pointer(head), 0, len(head))
        self._at += len(head)
        self._at = _fill(
            octets.pointer(self._out), self._at, octets.pointer(template.text),
            octets.pointer(template.slots), template.slot_count, figures,
            None if look.counted is not None else look.rates)
        return True

    def _looked_at(self, queue):
        """The look at a queue whose counters have moved, or None where there are too many looks."""
        look = self._rates.look_at(statistics.QUEUE, queue)
        if look is not None and not any(look.rates):
            look.counted = bytes(self._figures[_COUNTED_AT:])
        return look

    def _read(self, queue, consumers, figures):
        """As ``shapes.queue_facts`` and ``statistics.QUEUE`` read it."""
        ready, unacked = queue.ready_count, queue.unacked_count
        ready_bytes, unacked_bytes = queue.store.ready_bytes, queue.store.unacked_bytes
        no_ack = queue.auto_delivered - queue.auto_got
        _put(figures, 0, consumers)
        _put(figures, 1, ready_bytes + unacked_bytes)
        _put(figures, 2, ready_bytes)
        _put(figures, 3, unacked_bytes)
        _put(figures, 4, ready_bytes + unacked_bytes if queue.durable else 0)
        _put(figures, 5, ready + unacked if queue.durable else 0)
        _put(figures, 6, ready + unacked)
        _put(figures, 7, ready)
        _put(figures, 8, unacked)
        _put(figures, 9, queue.published)
        _put(figures, 10, queue.delivered - queue.got - no_ack)
        _put(figures, 11, no_ack)
        _put(figures, 12, queue.got - queue.auto_got)
        _put(figures, 13, queue.auto_got)
        _put(figures, 14, queue.got_none)
        _put(figures, 15, queue.delivered)
        _put(figures, 16, queue.requeued)
        _put(figures, 17, queue.acked)


def lines(rows, places):
    """(how many, the elements of a JSON array as a list of octets) of the queues at these places of a list.

    May switch.
    """
    written = QueueLines(node().rates, node().broker.vhosts)
    for start in paced(range(0, len(places), QUEUES_LOOK)):
        written.write([rows[place] for place in places[start:start + QUEUES_LOOK]])
    return written.count, written.end()


def _is_exclusive(consumers):
    for consumer in consumers:
        if consumer.exclusive:
            return True
    return False


def _put(figures, number, value):
    octets.put_le64(figures, 8 * number, value)


def _fill(out, at, text, slots, slot_count, figures, rates):
    """Write a template with its figures. Returns the offset behind it. ``rates``: None where all are 0."""
    text_at = 0
    for slot in range(slot_count):
        length, number = octets.le32(slots, 8 * slot), octets.le32(slots, 8 * slot + 4)
        octets.copy(out, at, text, text_at, length)
        at += length
        text_at += length
        if number < _RATES:
            at = _write_decimal(out, at, octets.le64(figures, 8 * number))
        elif number < _FIGURES:
            if rates is None:
                octets.copy(out, at, octets.pointer(b"0.0"), 0, 3)
                at += 3
            else:
                rate = orjson.dumps(rates[number - _RATES])
                octets.copy(out, at, octets.pointer(rate), 0, len(rate))
                at += len(rate)
    return at


def _write_decimal(out, at, number):
    """Write a number in decimal digits. Returns the offset behind it."""
    if number < 10:
        out[at] = 48 + number
        return at + 1
    digits, rest = 1, number
    while rest >= 10:
        rest //= 10
        digits += 1
    end = at + digits
    while digits > 0:
        digits -= 1
        out[at + digits] = 48 + number % 10
        number //= 10
    return end
