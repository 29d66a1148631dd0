"""Passwords of the broker's users, as tests ask for them."""


def has_password(users, name, password):
    """Whether the user has this password, by the rules of a login."""
    return users.matching_hash(name, password) is not None
