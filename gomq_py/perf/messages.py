"""Makes the messages to publish: routing keys, sizes, properties and bodies, the same in every run."""
import random
from itertools import cycle

from gomq_py.content.properties import Properties
from gomq_py.perf.walk import PublishBatch

WRITE_OCTETS = 65536  # one write; more does not save CPU time, less does
_CYCLE_OCTETS = 65536  # a cycle of equal messages fills one write
_CYCLE_MESSAGES = 1000  # a cycle of mixed messages
_REGIONS = 100
FIRST_NUMBER_BITS = 48  # below the publisher's index in a sequence number


class Stamps:
    """Where the 8-byte stamps lie in a body: offsets of timestamp and sequence number, -1 for a missing one.

    ``end``: the offset after the stamps.
    """

    def __init__(self, verify, latency):
        self.timestamp_at = 0 if latency else -1
        self.sequence_at = (8 if latency else 0) if verify else -1
        self.end = 8 * (bool(verify) + bool(latency))


def parse_size(text):
    """Parse sizes of bodies into (least, most) or, for a list, (least, most, *list). Raises ValueError.

    "16" -> (16, 16); "16-512" -> (16, 512); "64,16,512" -> (16, 512, 64, 16, 512).
    """
    if "," in text:
        in_turn = [int(size) for size in text.split(",")]
        low, high = min(in_turn), max(in_turn)
    else:
        in_turn = []
        first, _, last = text.partition("-")
        low, high = int(first), int(last or first)
    if not 0 <= low <= high:
        raise ValueError(f"a size is a number of bytes or a range such as 16-512, not {text!r}")
    return low, high, *in_turn


def filler(octet_count):
    """Return at least ``octet_count`` bytes of text.

    A body is the beginning of this text; stamps replace its first bytes.
    """
    return bytes(range(32, 127)) * (octet_count // 95 + 1)


def routing_keys(options, queue):
    """Return the routing keys that messages for this queue use in turn, as a list."""
    if options.key_count > 1:
        regions = min(max(options.binding_count, 1), _REGIONS)
        return [f"region.{number % regions}.device.{number}" for number in range(options.key_count)]
    return [queue if options.routing_key is None else options.routing_key]


def binding_keys(options, queue):
    """Return the binding keys of a queue. They match all its ``routing_keys``."""
    keys = routing_keys(options, queue)
    if options.binding_count > 1:
        patterns = ("region.{}.#", "region.{}.*.*", "#.{}.device.#", "*.{}.device.*")
        bindings = [
            patterns[number % 4].format(number % _REGIONS) + ".#" * (number // _REGIONS)
            for number in range(options.binding_count)
        ]
        # A single key has a name of its own, which the patterns do not match.
        return bindings if len(keys) > 1 else [*keys, *bindings[1:]]
    return ["region.#"] if len(keys) > 1 else keys


def properties(options, with_headers=True):
    """Return a message's encoded properties. ``with_headers``: include the ``header_count`` headers."""
    values = dict(options.properties)
    if options.header_count and with_headers:
        headers = {
            f"header-{number}": (number, "value", True, 1.5, f"text {number}")[number % 5]
            for number in range(options.header_count)
        }
        values["headers"] = {**headers, **values.get("headers", {})}
    if options.persistent:
        values["delivery_mode"] = 2
    return Properties(**values).encode()


def make_amqp_batch(options, channel, queue):
    """Return a PublishBatch of AMQP publishes to ``queue``, for this open channel."""
    without_headers = [properties(options, with_headers=False)] * (options.header_every - 1)
    in_turn = cycle([properties(options), *without_headers])

    def encode(key, body):
        frames = channel.publish_frames(
            options.exchange, key, body, next(in_turn), mandatory=options.mandatory)
        size, frame_max = len(body), channel.connection.frame_max
        room = frame_max - 8 if frame_max else size
        frame_count = -(-size // room) if size else 0
        return frames, len(frames) - size - 8 * frame_count + 7

    return make_batch(options, routing_keys(options, queue), encode)


def make_batch(options, keys, encode, cycle_octets=_CYCLE_OCTETS, identifier_before=0):
    """Return a PublishBatch whose messages use ``keys`` in turn.

    ``encode(key, body)`` returns (bytes of a publish, offset of the body in them). ``cycle_octets``: minimum
    size of the batch if all messages are alike. ``identifier_before``: see PublishBatch.
    """
    low, high, *sizes = options.size
    chance = random.Random(0)
    mixed = len(keys) > 1 or low != high
    content = filler(high)
    stamps = Stamps(options.verify, options.measure_latency)
    messages: list = []
    octet_count = 0
    while (
        len(messages) < max(_CYCLE_MESSAGES, len(keys)) if mixed else octet_count < cycle_octets
        or not messages
    ):
        size = sizes[len(messages) % len(sizes)] if sizes else chance.randint(low, high)
        body = chance.randbytes(size) if options.random_bodies else content[:size]
        messages.append(encode(keys[len(messages) % len(keys)], body))
        octet_count += len(messages[len(messages) - 1][0])
    return PublishBatch(messages, stamps.timestamp_at, stamps.sequence_at, identifier_before)
