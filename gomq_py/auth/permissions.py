"""Decides by regular expressions which rights a user has in one vhost.

Three expressions are for names of exchanges and queues, two for routing keys at each restricted topic
exchange. As in RabbitMQ, an expression may match any part of a name. An empty expression matches only the
empty name, which no entity has: the default exchange is checked as ``amq.default``. If matching takes too
long, the name counts as not matched, and this is logged.
"""
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.patterns import Pattern, escaped

# A client can trigger slow matches as often as it likes.
QUIET = QuietLog(logger("auth"))

CONFIGURE, WRITE, READ = "configure", "write", "read"
DEFAULT_EXCHANGE = "amq.default"

# Answers cached per permission and verb; a full cache is cleared; then each name costs one more search.
CACHED_NAMES = 4096
# Matches every name without a search or cache entry. Most users have it.
EVERYTHING = ".*"
# Expressions cached of a topic permission that names the client id; a full cache is cleared.
CACHED_CLIENTS = 1024


class Permission:
    """The rights of one user in one vhost. Immutable: a change of rights makes a new Permission."""

    __slots__ = ("user", "vhost", "configure", "write", "read", "_patterns", "_answers", "_unlimited")

    def __init__(self, user, vhost, configure, write, read, make=None):
        """``make(text)`` compiles a right's text, by default as a regular expression. Raises ValueError."""
        make = make or compiled
        self.user = user
        self.vhost = vhost
        self.configure = configure
        self.write = write
        self.read = read
        given = ((CONFIGURE, configure), (WRITE, write), (READ, read))
        self._patterns = {verb: make(pattern) for verb, pattern in given}
        self._unlimited = frozenset(
            verb for verb, pattern in given if make is compiled and pattern == EVERYTHING)
        self._answers = {CONFIGURE: {}, WRITE: {}, READ: {}}

    def allows(self, verb, name):
        """Return whether ``verb`` (CONFIGURE, WRITE or READ) is granted on the queue or exchange ``name``."""
        if verb in self._unlimited:
            return True
        answers = self._answers[verb]
        answer = answers.get(name)
        if answer is None:
            if len(answers) >= CACHED_NAMES:
                answers.clear()
            answer = answers[name] = _found(self._patterns[verb], name or DEFAULT_EXCHANGE, self.user)
        return answer


class TopicPermission:
    """The routing keys that a user may publish (write) and bind (read) at one topic exchange. Immutable.

    Where a user has no TopicPermission, all keys are allowed. ``{username}``, ``{vhost}`` and ``{client_id}``
    in an expression stand for the connection's values, escaped.
    """

    __slots__ = ("user", "vhost", "exchange", "write", "read", "_patterns", "_by_client")

    # A user called ``.*`` gets no more rights than others.
    def __init__(self, user, vhost, exchange, write, read):
        """``write``, ``read``: regular expressions. Raises ValueError if one is invalid."""
        self.user = user
        self.vhost = vhost
        self.exchange = exchange
        self.write = write
        self.read = read
        self._patterns = {verb: self._compiled(verb, "{client_id}") for verb in (WRITE, READ)}
        self._by_client = {}

    def allows(self, verb, routing_key, client_id=None):
        """Return whether ``verb`` (WRITE, READ) is granted for the routing key. ``client_id``: MQTT only."""
        return _found(self._pattern(verb, client_id), routing_key, self.user)

    def _pattern(self, verb, client_id):
        if client_id is None or "{client_id}" not in self._text(verb):
            return self._patterns[verb]
        pattern = self._by_client.get((verb, client_id))
        if pattern is None:
            if len(self._by_client) >= CACHED_CLIENTS:
                self._by_client.clear()
            pattern = self._by_client[verb, client_id] = self._compiled(verb, client_id)
        return pattern

    def _compiled(self, verb, client_id):
        text = self._text(verb)
        for name, value in (("{username}", self.user), ("{vhost}", self.vhost), ("{client_id}", client_id)):
            text = text.replace(name, escaped(value))
        return compiled(text)

    def _text(self, verb):
        return self.write if verb == WRITE else self.read


def _found(pattern, name, user):
    try:
        return pattern.found_in(name)
    except TimeoutError:
        QUIET.error(
            (user, pattern.text),
            "permission expression %r of user %r takes too long for %r, which is refused: "
            "write it without nested repeats",
            pattern.text, user, name,
        )
        return False


def compiled(pattern):
    """Return a permission's regular expression as a Pattern. Raises ValueError if it is invalid."""
    return Pattern(pattern or "^$")
