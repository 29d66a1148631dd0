"""Passwords: hashes in RabbitMQ's form, and bcrypt. A leaf of auth; pure functions, safe in threads.

    base64(salt (4 octets) + digest(salt + password)), digest one of SHA-256 (the default), SHA-512, MD5
    $2a$, $2b$ or $2y$ ...                              bcrypt: slow on purpose (0.1 to 1 s), so the doors verify it in a thread pool

An empty hash is a user without a password, who cannot log in with one.
"""
import hashlib
import hmac
import os
from base64 import b64decode, b64encode

import bcrypt

SHA256, SHA512, MD5 = "rabbit_password_hashing_sha256", "rabbit_password_hashing_sha512", "rabbit_password_hashing_md5"
BCRYPT = "bcrypt"
SALT_SIZE = 4  # RabbitMQ's; hashes made elsewhere are read with the same

_DIGESTS = {SHA256: "sha256", SHA512: "sha512", MD5: "md5"}
_ALIASES = {"sha256": SHA256, "sha512": SHA512, "md5": MD5, "lavinmq_bcrypt": BCRYPT}
# LavinMQ wrote these in front of the base64; its files may still hold them.
_LEGACY_PREFIXES = ("$5$", "$6$", "$1$")
_BCRYPT_PREFIXES = ("$2a$", "$2b$", "$2y$")
_BCRYPT_OCTETS = 72  # bcrypt looks at no more; newer libraries refuse longer ones instead of cutting


def algorithm_named(name):
    """The full name of a hashing algorithm, from that or a short one. Raises ValueError."""
    name = _ALIASES.get(name.lower(), name.lower())
    if name not in _DIGESTS and name != BCRYPT:
        raise ValueError(f"unknown password hashing algorithm {name!r}")
    return name


def hash_password(password, algorithm=SHA256):
    """A new salted hash as str."""
    octets = _octets(password)
    if algorithm == BCRYPT:
        return bcrypt.hashpw(octets[:_BCRYPT_OCTETS], bcrypt.gensalt()).decode()
    salt = os.urandom(SALT_SIZE)
    return b64encode(salt + _digest(algorithm, salt + octets)).decode()


def check_hash(password_hash, algorithm=SHA256):
    """The hash as it will be kept: trimmed, without legacy prefixes. Raises ValueError if no password could ever match it."""
    password_hash = password_hash.strip()
    if not password_hash or password_hash.startswith(_BCRYPT_PREFIXES):
        return password_hash
    if algorithm == BCRYPT:
        raise ValueError("not a bcrypt hash")
    stripped = _without_prefix(password_hash)
    try:
        size = len(b64decode(stripped, validate=True))
    except ValueError:
        raise ValueError("the password hash is not base64") from None
    expected = SALT_SIZE + hashlib.new(_DIGESTS[algorithm], usedforsecurity=False).digest_size
    if size != expected:
        raise ValueError(f"the password hash has {size} octets, {algorithm} makes {expected}")
    return stripped


def is_costly(password_hash):
    """Whether verifying takes long enough to belong into a thread pool."""
    return password_hash.startswith(_BCRYPT_PREFIXES)


def verify(password, password_hash, algorithm=SHA256):
    """Whether the password has this hash; takes as long for a wrong one. False for a hash that cannot be read."""
    octets = _octets(password)
    if not password_hash:
        return False
    if password_hash.startswith(_BCRYPT_PREFIXES):
        try:
            return bcrypt.checkpw(octets[:_BCRYPT_OCTETS], password_hash.encode())
        except ValueError:
            return False
    if algorithm not in _DIGESTS:
        return False
    try:
        raw = b64decode(_without_prefix(password_hash), validate=True)
    except ValueError:  # neither base64 nor, with that, ASCII
        return False
    return hmac.compare_digest(_digest(algorithm, raw[:SALT_SIZE] + octets), raw[SALT_SIZE:])


def _digest(algorithm, octets):
    return hashlib.new(_DIGESTS[algorithm], octets, usedforsecurity=False).digest()


def _without_prefix(password_hash):
    for prefix in _LEGACY_PREFIXES:
        if password_hash.startswith(prefix):
            return password_hash[len(prefix):]
    return password_hash


def _octets(password):
    return password.encode("utf-8", "surrogateescape") if isinstance(password, str) else bytes(password)
