"""Limits the lengths of user names, tags and descriptions, for all protocols and imports.

RabbitMQ has no such limits. Lists of users and virtual hosts contain these texts, so a tag of a megabyte
would make every such list a megabyte longer.
"""
from gomq_py.errors import PreconditionFailed

# The limit of AMQP's short string, in which a message names its user.
NAME_OCTETS_MAX = 255
# Seven tags have a meaning; they have 16 characters at most.
TAGS_MAX = 64
DESCRIPTION_OCTETS_MAX = 4096


def check_user_name(name):
    """Raise PreconditionFailed if a user name contains NUL or is longer than NAME_OCTETS_MAX bytes."""
    if "\0" in name:
        raise PreconditionFailed("user name has the character NUL")
    if _octets(name) > NAME_OCTETS_MAX:
        raise PreconditionFailed(f"user name is longer than {NAME_OCTETS_MAX} bytes")


def check_tags(tags):
    """Raise PreconditionFailed for more than TAGS_MAX tags, or a tag of more than NAME_OCTETS_MAX bytes."""
    if len(tags) > TAGS_MAX:
        raise PreconditionFailed(f"{len(tags)} tags are over the limit of {TAGS_MAX}")
    if any(_octets(tag) > NAME_OCTETS_MAX for tag in tags):
        raise PreconditionFailed(f"a tag is longer than {NAME_OCTETS_MAX} bytes")


def check_description(description):
    """Raise PreconditionFailed if a description is longer than DESCRIPTION_OCTETS_MAX bytes."""
    if _octets(description) > DESCRIPTION_OCTETS_MAX:
        raise PreconditionFailed(f"description is longer than {DESCRIPTION_OCTETS_MAX} bytes")


def _octets(text):
    return len(text.encode("utf-8", "surrogatepass"))
