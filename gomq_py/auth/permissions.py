"""Permissions: what a user may do with the exchanges and queues of one vhost, as three regular expressions over their names.

Below users. The expressions are searched, not anchored, as in RabbitMQ; an empty one matches the empty name only, and no entity has that: the default
exchange is asked for as ``amq.default``.
"""
import re

from gomq_py.amqp.wire.errors import AccessRefused

CONFIGURE, WRITE, READ = "configure", "write", "read"
DEFAULT_EXCHANGE = "amq.default"

# Answers kept per permission and verb; at the bound all are forgotten, which costs one regex search per name again.
CACHED_NAMES = 4096


class Permission:
    """The rights of one user in one vhost. Immutable: a change makes a new one."""

    __slots__ = ("user", "vhost", "configure", "write", "read", "_patterns", "_answers")

    def __init__(self, user, vhost, configure, write, read):
        """Raises ValueError for a regular expression that is none."""
        self.user = user
        self.vhost = vhost
        self.configure = configure
        self.write = write
        self.read = read
        self._patterns = {verb: compiled(pattern) for verb, pattern in ((CONFIGURE, configure), (WRITE, write), (READ, read))}
        self._answers = {CONFIGURE: {}, WRITE: {}, READ: {}}

    def allows(self, verb, name):
        """Whether ``verb`` is granted on the queue or exchange of this name."""
        answers = self._answers[verb]
        answer = answers.get(name)
        if answer is None:
            if len(answers) >= CACHED_NAMES:
                answers.clear()
            answer = answers[name] = self._patterns[verb].search(name or DEFAULT_EXCHANGE) is not None
        return answer

    def check(self, verb, kind, name):
        """Raises AccessRefused where ``verb`` is not granted on the ``kind`` ("queue", "exchange") of this name."""
        if not self.allows(verb, name):
            raise refusal(verb, kind, name, self.vhost, self.user)


def refusal(verb, kind, name, vhost, user):
    """The error of somebody without the right."""
    return AccessRefused(f"{verb} access to {kind} '{name or DEFAULT_EXCHANGE}' in vhost '{vhost}' refused for user '{user}'")


def compiled(pattern):
    """A permission's regular expression. Raises ValueError."""
    try:
        return re.compile(pattern or "^$")
    except re.error as error:
        raise ValueError(f"invalid regular expression {pattern!r}: {error}") from None
