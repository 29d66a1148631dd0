"""Makes, checks and verifies password hashes in RabbitMQ's form.

    base64(salt (4 bytes) + digest(salt + password)), digest one of SHA-256 (the default), SHA-512, MD5

auth.passwords adds bcrypt. Imports only gomq_py.digests and the standard library.
"""
import os
from _operator import _compare_digest  # hmac's compare_digest, which comes with hashlib
from base64 import b64decode, b64encode

from gomq_py.digests import md5, sha256, sha512

SHA256, SHA512, MD5 = (
    "rabbit_password_hashing_sha256", "rabbit_password_hashing_sha512", "rabbit_password_hashing_md5"
)
SALT_SIZE = 4  # as in RabbitMQ; verify() assumes it, too
DIGESTS = {SHA256: sha256, SHA512: sha512, MD5: md5}
# LavinMQ wrote these in front of the base64; its files may still hold them.
_LEGACY_PREFIXES = ("$5$", "$6$", "$1$")


def make(password, algorithm=SHA256):
    """Return a new salted hash of a password (str or bytes), as str."""
    salt = os.urandom(SALT_SIZE)
    return b64encode(salt + _digest(algorithm, salt + octets_of(password))).decode()


def check(salted_hash, algorithm=SHA256):
    """Return the hash without its legacy prefix. Raises ValueError if it is malformed."""
    stripped = _without_prefix(salted_hash)
    try:
        size = len(b64decode(stripped, validate=True))
    except ValueError:
        raise ValueError("the password hash is not base64") from None
    expected = SALT_SIZE + DIGESTS[algorithm](usedforsecurity=False).digest_size
    if size != expected:
        raise ValueError(f"the password hash has {size} bytes, {algorithm} makes {expected}")
    return stripped


def verify(password, salted_hash, algorithm=SHA256):
    """Return True if the password has this hash, in constant time. A malformed hash gives False."""
    try:
        raw = b64decode(_without_prefix(salted_hash), validate=True)
    except ValueError:  # not base64, or not even ASCII
        return False
    return _compare_digest(_digest(algorithm, raw[:SALT_SIZE] + octets_of(password)), raw[SALT_SIZE:])


def octets_of(password):
    return password.encode("utf-8", "surrogateescape") if isinstance(password, str) else bytes(password)


def _digest(algorithm, octets):
    return DIGESTS[algorithm](octets, usedforsecurity=False).digest()


def _without_prefix(salted_hash):
    for prefix in _LEGACY_PREFIXES:
        if salted_hash.startswith(prefix):
            return salted_hash[len(prefix):]
    return salted_hash
