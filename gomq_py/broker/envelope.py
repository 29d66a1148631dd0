"""Envelope: what the broker itself reads of a message's properties when it is published: who sent it, how
long it lives and how well it is kept, and further keys to route it by.

For broker.verbs.publishing, which checks every publish with it. Pure functions of decoded properties.
"""
import re

from gomq_py.broker.values import MAX_TIMER_MS, type_name
from gomq_py.content.properties import PERSISTENT, TRANSIENT
from gomq_py.errors import PreconditionFailed

EXTRA_KEYS, SECRET_KEYS = "CC", "BCC"
# Words that the keys in CC and BCC of a message may have together. Where an exchange has as many costly
# patterns as max_topic_words lets it have, a word takes some 10 us, and all keys of a message are matched in
# one piece; ordinary exchanges take 1 us for a key.
MAX_EXTRA_WORDS = 1024
_INTEGER = re.compile(r"[+-]?[0-9]+")


def check_user_id(user_id, user):
    """The user_id property names ``user``, or nobody. Raises PreconditionFailed."""
    if user_id is not None and user_id != user.name and "impersonator" not in user.tags:
        raise PreconditionFailed(
            f"user_id property set to '{user_id}' but authenticated user was '{user.name}'"
        )


def is_persistent(delivery_mode):
    """What the delivery_mode property, or None without one, says. Raises PreconditionFailed."""
    if delivery_mode not in (None, TRANSIENT, PERSISTENT):
        raise PreconditionFailed(f"invalid message: {{delivery_mode_unknown,{delivery_mode}}}")
    return delivery_mode == PERSISTENT


def expiration_ms(expiration):
    """The expiration property as milliseconds, None without one.

    Raises PreconditionFailed with RabbitMQ's reasons.
    """
    if expiration is None:
        return None
    number = _INTEGER.match(expiration)
    if number is None:
        reason = "no_integer"
    elif number.end() < len(expiration):
        reason = f'{{leftover_string,"{expiration[number.end():]}"}}'
    elif int(number.group()) < 0:
        reason = f"{{value_negative,{int(number.group())}}}"
    elif int(number.group()) > MAX_TIMER_MS:
        reason = f"{{value_too_large,{int(number.group())}}}"
    else:
        return int(number.group())
    raise PreconditionFailed(f"invalid expiration '{expiration}': {reason}")


def keys_among(headers):
    """The routing keys in CC and BCC, each once.

    What is no text in the arrays is passed over, as in RabbitMQ. Raises PreconditionFailed.
    """
    given = []
    for name in (EXTRA_KEYS, SECRET_KEYS):
        if not headers or name not in headers:
            continue
        values = headers[name]
        if not isinstance(values, list):
            raise PreconditionFailed(
                f'invalid message: {{unacceptable_type_in_header,"{name}",{type_name(values)}}}'
            )
        given.extend(value for value in values if isinstance(value, str))
    if not given:
        return ()
    keys = tuple(dict.fromkeys(given))
    words = len(keys) + sum(key.count(".") for key in keys)
    if words > MAX_EXTRA_WORDS:
        raise PreconditionFailed(
            f"invalid message: the routing keys in CC and BCC have {words} words, more than {MAX_EXTRA_WORDS}"
        )
    return keys
