"""Queue lines: the JSON of many queues, as ``shapes.queue`` has it, written straight from their counters.

A list of 20 000 queues is 30 MB of JSON, nearly all of it the same for each. Between what is of the queue
alone (its head, which is kept with its rates) and its figures lie texts that a Template finds by having
``shapes.queue_figures`` written with marks in place of figures; so the shape stands in one place. What is
rare is written from the object as everywhere else: queues that are closed, paused or of a connection, and
those with messages set aside, with consumers that are named or with long arguments. An answer says how long
it is before its first octet, but is not put together until it is sent: of each queue the figures and where
its head lies are kept so long, a tenth of its JSON.
"""
import re
from weakref import ref

import orjson

from gomq_py import octets
from gomq_py.broker.queues.stream_queue import StreamQueue
from gomq_py.http import shapes, statistics
from gomq_py.http.answers import WRITTEN_S, json_octets, node
from gomq_py.http.rates import LEAST_WINDOW_S, View
from gomq_py.hub.slice_clock import SliceClock
from gomq_py.hub.turns import give_way

# Queues that are written between two looks at the clock: some 50 us, or 1 ms where all are rare. Fewer where
# so many octets come from their objects: arguments may be of a megabyte.
QUEUES_LOOK, OBJECTS_OCTETS = 40, 32 * 1024
# Octets of one part and queues at most, some 0.1 ms until they are sent. Parts are what the cycle collector
# counts, and each of its rounds goes through all rows: with 64 KiB a list took a sixth longer.
PART_OCTETS, PART_QUEUES = 128 * 1024, 128
# Octets of a queue that is written from its counters.
_ROOM = 4096
# Of one figure, with the text in front of it: 20 digits of a counter, or a rate.
_FIGURE_ROOM = 32
# How a queue of a part is written.
_IDLE, _BUSY, _WHOLE = 0, 1, 2
# Marks of a template, which is told from the digits of everything else in it.
_COUNT_MARK, _RATE_MARK = 8_700_000_000_000_000_000, 870_000_000.5
_MARKS = re.compile(rb"8700000000000000(\d{3})|870000(\d{3})\.5")
# Numbers of the figures: those of shapes.QUEUE_FACTS, the counters of statistics.QUEUE and their rates.
_FACTS = len(shapes.QUEUE_FACTS)
_RATES = _FACTS + len(statistics.QUEUE.names)
_FIGURES = _RATES + len(statistics.QUEUE.names)
_COUNTED_AT, _COUNTED_OCTETS = 8 * _FACTS, 8 * (_RATES - _FACTS)
_RECORD = 8 * _RATES


class Template:
    """The texts between the figures of a queue: ``text`` is all of them, ``slots`` of each how long it is and
    the number of the figure behind it, as little-endian numbers of 32 bits; behind the last is none.

    ``counts`` are the numbers of its counters, an octet each; ``least``: octets of all else where its rates
    are 0; ``room``: octets that it takes with its figures, at most.
    """

    __slots__ = ("text", "slots", "slot_count", "counts", "count_count", "least", "room")

    def __init__(self, has_consumers):
        facts = [_COUNT_MARK + number for number in range(_FACTS)]
        if not has_consumers:
            facts[shapes.QUEUE_FACTS.index("consumers")] = 0
        counted = range(len(statistics.QUEUE.names))
        view = View(
            statistics.QUEUE, [_COUNT_MARK + _FACTS + number for number in counted],
            [_RATE_MARK + number for number in counted], None, None)
        written = b"," + json_octets(shapes.queue_figures(facts, view))[1:]
        texts, slots, numbers, at = [], bytearray(), [], 0
        for mark in _MARKS.finditer(written):
            number = int(mark[1]) if mark[1] else _RATES + int(mark[2])
            numbers.append(number)
            slots += (mark.start() - at).to_bytes(4, "little") + number.to_bytes(4, "little")
            texts.append(written[at:mark.start()])
            at = mark.end()
        slots += (len(written) - at).to_bytes(4, "little") + _FIGURES.to_bytes(4, "little")
        texts.append(written[at:])
        self.slot_count = len(texts)
        self.text = b"".join(texts)
        self.slots = bytes(slots)
        self.counts = bytes(number for number in numbers if number < _RATES)
        self.count_count = len(self.counts)
        self.least = len(self.text) + len(b"0.0") * (len(numbers) - self.count_count)
        self.room = len(self.text) + _FIGURE_ROOM * self.slot_count


_templates: list = []  # of queues without consumers and with some, once somebody lists many


class Part:
    """Some queues of a list as they were looked at, with commas. Its length is known before it is
    ``written``.
    """

    __slots__ = ("_length", "_is_first", "_count", "_figures", "_texts", "_kinds", "_out")

    def __init__(self, length, is_first, figures, texts, kinds, out):
        """``texts``: of each queue its head, or all of it; ``out``: the bytearray that parts are written in.
        """
        self._length = length
        self._is_first = is_first
        self._count = len(texts)
        self._figures = figures
        self._texts = texts
        self._kinds = kinds
        self._out = out

    def __len__(self):
        return self._length

    def written(self):
        """Its octets."""
        out = self._out if len(self._out) >= self._length else bytearray(self._length)
        target, at = octets.pointer(out), 0
        figures, kinds = octets.pointer(self._figures), octets.pointer(self._kinds)
        for place in range(self._count):
            if place or not self._is_first:
                target[at] = 44  # a comma
                at += 1
            text = self._texts[place]
            octets.copy(target, at, octets.pointer(text), 0, len(text))
            at += len(text)
            if kinds[place] != _WHOLE:
                at = _fill(target, at, _templates[kinds[place]], figures, _RECORD * place, None)
        assert at == self._length
        with memoryview(out) as written:
            return bytes(written[:at])


class QueueLines:
    """Writes queues as elements of a JSON array: ``parts`` are Parts, with commas between the elements."""

    __slots__ = (
        "parts", "count", "_rates", "_looks", "_listed", "_listed_at", "_vhosts", "_queues", "_there",
        "_part_octets", "_out", "_length", "_texts", "_kinds", "_kinds_at", "_figures", "_figures_at",
        "_moving", "_from_objects",
    )

    def __init__(self, rates, vhosts, part_octets=PART_OCTETS):
        """``rates`` is the node's, ``vhosts`` its dict of them; a part has so many octets, and an element."""
        if not _templates:
            _templates.extend((Template(False), Template(True)))
        self.parts = []
        self.count = 0
        self._rates = rates
        self._looks = None
        self._listed = None  # as _Looks has it, and how many queues with a look came before
        self._listed_at = 0
        self._vhosts = vhosts
        self._queues = None  # of the vhost of the last queue, and an iterator over them
        self._there = None
        self._part_octets = part_octets
        self._out = bytearray(part_octets + _ROOM)
        self._length = 0
        self._texts = []
        self._kinds = bytearray(PART_QUEUES)
        self._kinds_at = octets.pointer(self._kinds)
        self._figures = bytearray(_RECORD * PART_QUEUES)
        self._figures_at = octets.pointer(self._figures)
        self._moving = bytearray(_ROOM)
        self._from_objects = 0  # octets, since write() was called

    def write(self, rows):
        """Those of these queues that are there now, up to where others should have their turn. Returns how
        many of them are done with.
        """
        self._from_objects = done = 0
        now_s = self._rates.now_s()
        self._looks = self._rates.looks_of(statistics.QUEUE)  # all may have been forgotten
        self._listed = self._looks.listed
        vhost = None
        for row in rows:
            if self._from_objects >= OBJECTS_OCTETS:
                break
            done += 1
            if row.vhost != vhost:
                vhost = row.vhost
                self._enter(vhost)
            queue = self._now(row)
            if queue is None:
                continue
            if self.count:
                self._length += 1  # a comma
            self.count += 1
            if not self._take(queue, now_s):
                self._add(self._from_object(shapes.queue(queue)), _WHOLE)
            if self._length >= self._part_octets or len(self._texts) == PART_QUEUES:
                self._hand_over()
        return done

    def _enter(self, vhost):
        """The next queues are of this vhost."""
        there = self._vhosts.get(vhost)
        queues = {} if there is None else there.queues
        if queues is not self._queues:
            self._queues = queues
            self._there = iter(queues.values())

    def _now(self, row):
        """The queue that is there now under the name of this one, or None.

        Most lists are of a vhost's queues as they stand there: these are gone through beside the list, and
        nothing is looked for until the two differ.
        """
        if self._there is not None:
            try:
                if next(self._there, None) is row:
                    return row
            except RuntimeError:  # there are more, or fewer, than there were
                pass
            self._there = None
        return self._queues.get(row.name)

    def end(self):
        """There are no more. Returns the parts."""
        self._hand_over()
        return self.parts

    def _from_object(self, shape):
        text = json_octets(shape)
        self._from_objects += len(text)
        return text

    def _add(self, text, kind):
        self._kinds_at[len(self._texts)] = kind
        self._texts.append(text)
        self._length += len(text)

    def _hand_over(self):
        count = len(self._texts)
        if count:
            self.parts.append(Part(
                self._length, not self.parts, bytes(self._figures[:_RECORD * count]), self._texts,
                bytes(self._kinds[:count]), self._out))
        self._texts = []
        self._length = 0

    def _take(self, queue, now_s):
        """Take over a queue that is nothing special. False: it is, and nothing was taken."""
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
        at = _RECORD * len(self._texts)
        figures = self._figures_at
        self._read(queue, consumers, figures, at)
        look = self._look(queue)
        if look is None or now_s - look.at >= LEAST_WINDOW_S:
            if look is not None and look.counted is not None and octets.same(
                    figures, at + _COUNTED_AT, octets.pointer(look.counted), 0, _COUNTED_OCTETS):
                look.at = now_s  # as it was at the last look: its rates are still 0
            else:
                look = self._looked_at(queue, at)
                if look is None:
                    return False
        self._list(look)
        head = look.head
        if look.in_force is not queue.in_force or look.arguments is not queue.arguments:
            head = self._from_object(shapes.queue_head(queue))
            head = head[:len(head) - 1] if len(head) + _templates[_BUSY].room <= _ROOM else b""
            look.head = head
            look.in_force = queue.in_force
            look.arguments = queue.arguments
        if not head:
            return False
        kind = _BUSY if consumers else _IDLE
        if look.counted is not None:
            self._add(head, kind)
            self._length += _filled_length(_templates[kind], figures, at)
            return True
        self._add_moving(head, _templates[kind], figures, at, look.rates)
        return True

    def _look(self, queue):
        """The look at a queue, or None."""
        if self._listed_at < len(self._listed):
            look = self._listed[self._listed_at]
            if look.thing() is queue:
                return look
        return self._looks.get(ref(queue))

    def _list(self, look):
        """It is the next one of this list."""
        at = self._listed_at
        self._listed_at += 1
        if at < len(self._listed):
            self._listed[at] = look
        elif at == len(self._listed):  # or all were forgotten since this list began
            self._listed.append(look)

    def _add_moving(self, head, template, figures, at, rates):
        """At once, for its rates may be others when it is sent."""
        moving = octets.pointer(self._moving)
        octets.copy(moving, 0, octets.pointer(head), 0, len(head))
        end = _fill(moving, len(head), template, figures, at, rates)
        with memoryview(self._moving) as written:
            self._add(bytes(written[:end]), _WHOLE)

    def _looked_at(self, queue, at):
        """The look at a queue whose counters have moved, or None where there are too many looks."""
        look = self._rates.look_at(statistics.QUEUE, queue)
        if look is not None and not any(look.rates):
            look.counted = bytes(self._figures[at + _COUNTED_AT:at + _RECORD])
        return look

    def _read(self, queue, consumers, figures, at):
        """As ``shapes.queue_facts`` and ``statistics.QUEUE`` read it."""
        ready = queue.store.ready_count
        unacked = queue.unacked_count if isinstance(queue, StreamQueue) else queue.store.unacked_count
        ready_bytes, unacked_bytes = queue.store.ready_bytes, queue.store.unacked_bytes
        no_ack = queue.auto_delivered - queue.auto_got
        _put(figures, at, 0, consumers)
        _put(figures, at, 1, ready_bytes + unacked_bytes)
        _put(figures, at, 2, ready_bytes)
        _put(figures, at, 3, unacked_bytes)
        _put(figures, at, 4, ready_bytes + unacked_bytes if queue.durable else 0)
        _put(figures, at, 5, ready + unacked if queue.durable else 0)
        _put(figures, at, 6, ready + unacked)
        _put(figures, at, 7, ready)
        _put(figures, at, 8, unacked)
        _put(figures, at, 9, queue.published)
        _put(figures, at, 10, queue.delivered - queue.got - no_ack)
        _put(figures, at, 11, no_ack)
        _put(figures, at, 12, queue.got - queue.auto_got)
        _put(figures, at, 13, queue.auto_got)
        _put(figures, at, 14, queue.got_none)
        _put(figures, at, 15, queue.delivered)
        _put(figures, at, 16, queue.requeued)
        _put(figures, at, 17, queue.acked)


def lines(rows, places):
    """(how many, the elements of a JSON array as a list of Parts) of the queues at these places of a list.

    May switch.
    """
    written = QueueLines(node().rates, node().broker.vhosts)
    done, clock = 0, SliceClock(WRITTEN_S)
    while done < len(places):
        done += written.write([rows[place] for place in places[done:done + QUEUES_LOOK]])
        if clock.is_over():
            give_way()
            clock.begin()
    return written.count, written.end()


def _is_exclusive(consumers):
    for consumer in consumers:
        if consumer.exclusive:
            return True
    return False


def _put(figures, at, number, value):
    octets.put_le64(figures, at + 8 * number, value)


def _filled_length(template, figures, at):
    """Octets of a template with the figures that lie at ``at``, where its rates are 0."""
    length, counts = template.least, octets.pointer(template.counts)
    for count in range(template.count_count):
        length += _digits(octets.le64(figures, at + 8 * counts[count]))
    return length


def _fill(out, at, template, figures, figures_at, rates):
    """Write a template with the figures that lie at ``figures_at``. Returns the offset behind it.

    ``rates``: None where all are 0.
    """
    text, slots, text_at = octets.pointer(template.text), octets.pointer(template.slots), 0
    for slot in range(template.slot_count):
        length, number = octets.le32(slots, 8 * slot), octets.le32(slots, 8 * slot + 4)
        octets.copy(out, at, text, text_at, length)
        at += length
        text_at += length
        if number < _RATES:
            at = _write_decimal(out, at, octets.le64(figures, figures_at + 8 * number))
        elif number < _FIGURES:
            if rates is None:
                octets.copy(out, at, octets.pointer(b"0.0"), 0, 3)
                at += 3
            else:
                rate = orjson.dumps(rates[number - _RATES])
                octets.copy(out, at, octets.pointer(rate), 0, len(rate))
                at += len(rate)
    return at


def _digits(number):
    """How many decimal digits a number has."""
    digits = 1
    while number >= 10:
        number //= 10
        digits += 1
    return digits


def _write_decimal(out, at, number):
    """Write a number in decimal digits. Returns the offset behind it."""
    if number < 10:
        out[at] = 48 + number
        return at + 1
    digits = _digits(number)
    end = at + digits
    while digits > 0:
        digits -= 1
        out[at + digits] = 48 + number % 10
        number //= 10
    return end
