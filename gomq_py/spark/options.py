"""The options of the data source: names, defaults, and checks, with errors for invalid values.

An option known from Spark's Kafka source has the same name here; case does not matter. All options are
checked when Spark creates the source, so that load() fails, not the first action. No option contains a
password, because Spark shows options in plans, event logs and its UI.
"""
import difflib
import json
import os
import re
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

from gomq_py.spark.errors import OptionError

TRANSPORTS = ("http", "files", "amqp")
EARLIEST, LATEST = "earliest", "latest"
TIMES = "times"
DEFAULT_URL = "http://127.0.0.1:15672"
# Spark's driver keeps each task of a batch in memory, and is slow with more.
MOST_PARTITIONS = 100_000
LONGEST_SHOWN = 200

_BYTES = {
    "": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30
}


def _text(name, value):
    if not value:
        raise OptionError(f"option {name} is empty")
    return value


def _flag(name, value):
    if value.lower() not in ("true", "false"):
        raise OptionError(f"option {name} is true or false, not {value!r}")
    return value.lower() == "true"


def _count(name, value, most=None):
    count = _whole(value)
    if not count or most is not None and count > most:
        bounds = "from 1 on" if most is None else f"from 1 to {most}"
        raise OptionError(f"option {name} is a whole number {bounds}, not {_shown(value)}")
    return count


def _whole(text):
    if not text.isdecimal() or len(text) > 19 or int(text) >= 1 << 62:
        return None
    return int(text)


def _shown(value):
    return repr(value) if len(value) <= LONGEST_SHOWN else repr(value[:LONGEST_SHOWN]) + "..."


def _pushed(name, value):
    """Parse the option pushFilters, which says for which filters whole segments are skipped. Returns False
    (none), True (filters on offset) or "times" (filters on offset and timestamp).
    """
    if value.lower() not in ("true", "false", TIMES):
        raise OptionError(
            f"option {name} is false, true (filters on offset) or times (on timestamp as well), not {value!r}"
        )
    return TIMES if value.lower() == TIMES else value.lower() == "true"


def _octets(name, value, most=None):
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", value.strip().lower())
    if not found or found[2] not in _BYTES or not _whole(found[1]):
        raise OptionError(
            f"option {name} is a number of bytes from 1 on, such as 65536, 512k or 8m, not {_shown(value)}")
    octets = int(found[1]) * _BYTES[found[2]]
    if most is not None and octets > most:
        raise OptionError(f"option {name} is at most {most} bytes, not {_shown(value)}")
    return octets


def _milliseconds(name, value):
    found = _whole(value)
    if found is None:
        raise OptionError(f"option {name} is a time in milliseconds since 1970, not {_shown(value)}")
    return found


def _seconds(name, value):
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < 1e6:
        raise OptionError(f"option {name} is a number of seconds, not {value!r}")
    return seconds


def _delay_ms(name, value):
    found = re.fullmatch(r"(\d{1,9})\s*([a-z]*)", value.strip().lower())
    if not found or found[2] not in _MILLISECONDS:
        raise OptionError(f"option {name} is a duration such as 500ms, 30s or 15m, not {_shown(value)}")
    return int(found[1]) * _MILLISECONDS[found[2]]


def _names(name, value):
    names = [part.strip() for part in value.split(",")]
    if not all(names):
        raise OptionError(f"option {name} is a list of names such as 'orders,payments', not {value!r}")
    if len(set(names)) < len(names):
        raise OptionError(f"option {name} names a stream twice: {value!r}")
    return tuple(names)


def _assigned(name, value):
    """Parse a JSON list of streams, or Kafka's form {name: [0]}, into a tuple. Names may contain commas."""
    try:
        given = json.loads(value)
        if isinstance(given, dict) and all(partitions == [0] for partitions in given.values()):
            given = list(given)
        if not isinstance(given, list) or not given or not all(given) or len(set(given)) < len(given):
            raise ValueError
        return tuple(map(_name, given))
    except (ValueError, TypeError, RecursionError):
        raise OptionError(
            f"option {name} is JSON of different streams, such as [\"orders\"] or {{\"orders\": [0]}}, "
            f"not {_shown(value)}") from None


def _name(value):
    if not isinstance(value, str):
        raise ValueError
    return value


def _pattern(name, value):
    try:
        return re.compile(_text(name, value)).pattern
    except re.error as error:
        raise OptionError(f"option {name} is a regular expression; {value!r} is none: {error}") from None


def _url(name, value):
    try:
        parts = urlsplit(value)
        parts.port  # raises ValueError by itself
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError(f"option {name} is the address of the management API, such as {DEFAULT_URL}")
    if parts.username is not None or parts.password is not None:
        raise OptionError(
            f"option {name} holds a user or password, which plans and logs would show: {CREDENTIALS_ADVICE}")
    return value.rstrip("/").removesuffix("/api")


def _amqp_url(name, value):
    if not re.match(r"amqps?://[^@/]+(/|$)", value):
        raise OptionError(
            f"option {name} is such as amqp://127.0.0.1:5672 and holds no user or "
            f"password: {CREDENTIALS_ADVICE}")
    return value


def _transport(name, value):
    if value not in TRANSPORTS:
        raise OptionError(f"option {name} is one of {', '.join(TRANSPORTS)}, not {value!r}")
    return value


def _offsets(name, value):
    """Parse an option: earliest, latest, an offset, or JSON of {stream: earliest, latest or an offset}."""
    if value in (EARLIEST, LATEST):
        return value
    if (offset := _whole(value)) is not None:
        return offset
    wanted = 'earliest, latest, an offset, or JSON such as {"orders": 17, "payments": "earliest"}'
    return _of_streams(name, value, _offset, wanted)


def _times(name, value):
    """Parse JSON of {stream: milliseconds}, or Kafka's {stream: {"0": milliseconds}}."""
    wanted = 'JSON of times in milliseconds since 1970, such as {"orders": 1767225600000}'
    return _of_streams(name, value, _time_ms, wanted)


def _of_streams(name, text, parse, wanted):
    """Return {stream: parsed value} of a JSON object. Raises OptionError with ``wanted``, the valid form."""
    try:
        given = json.loads(text)
        if isinstance(given, dict) and given:
            return {stream: parse(value) for stream, value in given.items()}
    except (ValueError, RecursionError):
        pass
    raise OptionError(f"option {name} is {wanted}, not {_shown(text)}")


def _time_ms(value):
    if isinstance(value, dict) and list(value) == ["0"]:
        value = value["0"]
    if value in (EARLIEST, LATEST):
        raise ValueError
    return _offset(value)


def _offset(value):
    if (
        value in (EARLIEST, LATEST)
        or isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62
    ):
        return value
    raise ValueError


_MILLISECONDS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

CREDENTIALS_ADVICE = (
    "set GOMQ_USER and GOMQ_PASSWORD (or GOMQ_TOKEN) in the driver's environment, "
    "or name a file with the option credentialsFile"
)

READER = "reading"
WRITER = "writing"
BOTH = "both"

# name -> (parser, default, use)
TABLE: dict[str, tuple] = {
    "url": (_url, DEFAULT_URL, BOTH),
    "vhost": (_text, "/", BOTH),
    "credentialsFile": (_text, None, BOTH),
    "caFile": (_text, None, BOTH),
    "timeoutSeconds": (_seconds, 30.0, BOTH),
    "retrySeconds": (_seconds, 60.0, BOTH),
    "transport": (_transport, "http", READER),
    "dataDir": (_text, None, READER),
    "subscribe": (_names, None, READER),
    "subscribePattern": (_pattern, None, READER),
    "assign": (_assigned, None, READER),
    "startingOffsets": (_offsets, None, READER),
    "endingOffsets": (_offsets, None, READER),
    "startingTimestamp": (_milliseconds, None, READER),
    "endingTimestamp": (_milliseconds, None, READER),
    "startingOffsetsByTimestamp": (_times, None, READER),
    "endingOffsetsByTimestamp": (_times, None, READER),
    "maxOffsetsPerTrigger": (_count, None, READER),
    "maxBytesPerTrigger": (_octets, None, READER),
    "minOffsetsPerTrigger": (_count, None, READER),
    "maxTriggerDelay": (_delay_ms, 15 * 60_000, READER),  # Kafka's default
    "minPartitions": (partial(_count, most=MOST_PARTITIONS), 1, READER),
    "maxRecordsPerPartition": (_count, None, READER),
    "partitionBytes": (_octets, 64 << 20, READER),
    "failOnDataLoss": (_flag, True, READER),
    "includeHeaders": (_flag, False, READER),
    "includeEpoch": (_flag, False, READER),
    "batchRows": (partial(_count, most=1_000_000), 20000, READER),
    "batchBytes": (partial(_octets, most=1 << 30), 4 << 20, READER),  # positions in it are 32 bits
    "pushFilters": (_pushed, False, READER),
    "amqpUrl": (_amqp_url, None, BOTH),
    "exchange": (lambda name, value: value, None, WRITER),
    "routingKey": (lambda name, value: value, None, WRITER),
    "queue": (_text, None, WRITER),
    "queueColumn": (_text, None, WRITER),
    "messageIdColumn": (_text, None, WRITER),
    "deduplicationHeader": (_text, None, WRITER),
    "rowMessageIds": (_flag, False, WRITER),
    "maxBatchRows": (_count, None, WRITER),
    "messagesPerSecond": (_count, None, WRITER),
    "persistent": (_flag, True, WRITER),
    "mandatory": (_flag, True, WRITER),
    "confirmSeconds": (_seconds, 60.0, WRITER),
    "confirmBatch": (_count, 1000, WRITER),
}
_BY_LOWER = {name.lower(): name for name in TABLE}
# Options of the streaming query itself, which Spark also passes to the sink.
_OF_SPARK = {"checkpointlocation", "queryname"}
_SECRETS = {"user", "username", "password", "token", "secret"}


@dataclass
class Credentials:
    """User and password, or a token. Plans and logs show the repr(), which leaves out password and token."""

    user: str = "guest"
    password: str = field(default="guest", repr=False)
    token: str = field(default="", repr=False)


class Options:
    """The checked options; ``options[name]``: parsed value or default. The constructor raises OptionError."""

    def __init__(self, given):
        self._values = {name: default for name, (_, default, _) in TABLE.items()}
        self.given = set()
        for key, value in given.items():
            if key.lower() in _OF_SPARK:
                continue
            name = _BY_LOWER.get(key.lower())
            if name is None:
                raise OptionError(_unknown(key))
            self._values[name] = TABLE[name][0](name, str(value))
            self.given.add(name)
        self._check()

    def __getitem__(self, name):
        return self._values[name]

    @property
    def streams(self):
        """The names in the option subscribe or assign; None if subscribePattern is given instead."""
        return self["subscribe"] or self["assign"]

    @property
    def is_for_writing(self):
        """True if an option was given that only the sink (writing to the broker) has."""
        return bool(self.given & {name for name, (_, _, use) in TABLE.items() if use == WRITER})

    def _check(self):
        reads = sorted(name for name in self.given if TABLE[name][2] == READER)
        writes = sorted(name for name in self.given if TABLE[name][2] == WRITER)
        if reads and writes:
            raise OptionError(
                f"option {writes[0]} is for writing and option {reads[0]} for reading: give one kind")
        if writes:
            self._check_writer()
        else:
            self._check_reader()

    def _check_reader(self):
        if self.streams is None and self["subscribePattern"] is None:
            raise OptionError(
                "what to read is missing: give option subscribe with the names of streams, or "
                "subscribePattern; to write, queue or exchange")
        self._one_of("subscribe", "subscribePattern", "assign")
        self._one_of("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
        self._one_of("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
        if self["transport"] == "files" and self["dataDir"] is None:
            raise OptionError(
                "option dataDir is missing: with transport=files it names the broker's data folder, "
                "or a backup of it")
        if self["transport"] != "files" and self["dataDir"] is not None:
            raise OptionError(f"option dataDir is for transport=files, and transport is {self['transport']}")
        self._check_amqp()
        if self["endingOffsets"] == EARLIEST:
            raise OptionError(
                "option endingOffsets is latest, an offset or JSON; earliest would be nothing at all")
        self._check_triggers()
        for option in (
            "startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"
        ):
            strange = (
                sorted(set(self[option]) - set(self.streams or self[option]))
                if isinstance(self[option], dict) else ()
            )
            if strange:
                lists = "assign" if self["assign"] else "subscribe"
                raise OptionError(
                    f"option {option} speaks of stream '{strange[0]}', which option {lists} does not name")

    def _check_triggers(self):
        least, most = self["minOffsetsPerTrigger"], self["maxOffsetsPerTrigger"]
        if least is not None and most is not None and least > most:
            raise OptionError(
                f"option minOffsetsPerTrigger is {least} and maxOffsetsPerTrigger {most}: "
                "the least is at most the most")
        if least is None and "maxTriggerDelay" in self.given:
            raise OptionError(
                "option maxTriggerDelay goes with option minOffsetsPerTrigger: "
                "without it no batch waits for messages")

    def _check_amqp(self):
        if self["transport"] != "amqp":
            if self["amqpUrl"] is not None:
                raise OptionError(
                    "option amqpUrl is for writing and for transport=amqp, "
                    f"and transport is {self['transport']}")
            return
        for option in (
            "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"
        ):
            if self[option] is not None:
                raise OptionError(
                    f"option {option} needs transport=http or files: "
                    "consumers are not told when messages came")
        if self["subscribePattern"] is not None:
            raise OptionError(
                "option subscribePattern needs transport=http: AMQP does not tell names; "
                "name streams with subscribe")

    def _check_writer(self):
        if self["queue"] is None and self["exchange"] is None and self["queueColumn"] is None:
            raise OptionError(
                "where to write is missing: give option queue, or exchange and a column or option "
                "routingKey, or queueColumn")
        self._one_of("queue", "exchange", "queueColumn")
        if self["queueColumn"] is not None and self["deduplicationHeader"] is not None:
            raise OptionError(
                "option deduplicationHeader goes with option queue or exchange: "
                "the queues that option queueColumn will name cannot be checked at the start")
        if self["exchange"] is None and self["routingKey"] is not None:
            raise OptionError(
                "option routingKey goes with option exchange: "
                "what goes to a queue has the queue's name for a key")

    def _one_of(self, *names):
        given = [name for name in names if self[name] is not None]
        if len(given) > 1:
            raise OptionError(f"options {given[0]} and {given[1]} exclude each other: give one")


def _unknown(key):
    if key.lower() in _SECRETS:
        return f"option {key} is not taken, because plans and logs would show it: {CREDENTIALS_ADVICE}"
    near = difflib.get_close_matches(key.lower(), _BY_LOWER, 1)
    return f"option {key} is unknown" + (
        f": did you mean {_BY_LOWER[near[0]]}?" if near else f"; there are {', '.join(sorted(TABLE))}"
    )


def credentials(options, environment=None):
    """Return the Credentials from a file or from environment variables. Raises OptionError.

    The option credentialsFile names the file: JSON with user and password, or token. Without the option,
    GOMQ_USER, GOMQ_PASSWORD and GOMQ_TOKEN are used; user and password are guest by default.
    """
    environment = os.environ if environment is None else environment
    path = options["credentialsFile"]
    if path is None:
        return Credentials(
            environment.get("GOMQ_USER", "guest"), environment.get("GOMQ_PASSWORD", "guest"),
            environment.get("GOMQ_TOKEN", ""))
    try:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
        if (
            not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values())
            or not given.keys() & {"user", "token"}
        ):
            raise ValueError(
                'it is not JSON such as {"user": "spark", "password": "..."} or {"token": "..."}')
    except (OSError, ValueError) as error:
        reason = (
            error.strerror if isinstance(error, OSError)
            else "it is not JSON" if isinstance(error, json.JSONDecodeError)
            else error
        )
        raise OptionError(f"the credentials of {path} cannot be used: {reason}") from None
    return Credentials(given.get("user", ""), given.get("password", ""), given.get("token", ""))
