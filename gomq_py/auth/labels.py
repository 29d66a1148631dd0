"""Labels: what operators call users, and what they say about users and virtual hosts: how long it may be.

Beside users; for every door, and for imports. Each list of users or virtual hosts shows all of it, and the
log keeps it, so that one request of a megabyte would be one of every answer. RabbitMQ has no limits.
"""
from gomq_py.errors import PreconditionFailed

# AMQP's short string, in which a message names its user.
NAME_OCTETS_MAX = 255
# Those with a meaning are seven, of 16 characters at most.
TAGS_MAX = 64
DESCRIPTION_OCTETS_MAX = 4096


def check_user_name(name):
    """Raises PreconditionFailed."""
    if "\0" in name:
        raise PreconditionFailed("user name has the character NUL")
    if _octets(name) > NAME_OCTETS_MAX:
        raise PreconditionFailed(f"user name is longer than {NAME_OCTETS_MAX} octets")


def check_tags(tags):
    """Raises PreconditionFailed."""
    if len(tags) > TAGS_MAX:
        raise PreconditionFailed(f"{len(tags)} tags are over the limit of {TAGS_MAX}")
    if any(_octets(tag) > NAME_OCTETS_MAX for tag in tags):
        raise PreconditionFailed(f"a tag is longer than {NAME_OCTETS_MAX} octets")


def check_description(description):
    """Raises PreconditionFailed."""
    if _octets(description) > DESCRIPTION_OCTETS_MAX:
        raise PreconditionFailed(f"description is longer than {DESCRIPTION_OCTETS_MAX} octets")


def _octets(text):
    return len(text.encode("utf-8", "surrogatepass"))
