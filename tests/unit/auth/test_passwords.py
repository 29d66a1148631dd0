"""Passwords: hashes made elsewhere are understood, and our own by others."""
import hashlib
from base64 import b64decode, b64encode

import pytest

from gomq_py.auth import passwords

# The hash LavinMQ and RabbitMQ tools print for "guest"; salt and digest are theirs.
GUEST_SHA256 = "+pHuxkR9fCyrrwXjOD4BP4XbzO3l8LJr8YkThMgJ0yVHFRE+"


def test_hash_made_by_others_is_understood():
    assert passwords.verify("guest", GUEST_SHA256)
    assert not passwords.verify("Guest", GUEST_SHA256)


@pytest.mark.parametrize("algorithm, digest", [
    (passwords.SHA256, "sha256"), (passwords.SHA512, "sha512"), (passwords.MD5, "md5")
])
def test_hash_is_salt_and_digest(algorithm, digest):
    raw = b64decode(passwords.hash_password("pässword", algorithm))

    assert raw[4:] == hashlib.new(digest, raw[:4] + "pässword".encode()).digest()
    assert passwords.verify("pässword", b64encode(raw).decode(), algorithm)
    assert not passwords.verify("password", b64encode(raw).decode(), algorithm)


def test_two_hashes_of_one_password_differ():
    assert passwords.hash_password("secret") != passwords.hash_password("secret")


def test_bcrypt_is_verified_and_called_costly():
    # crypt_blowfish's published vector
    password_hash = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"

    assert passwords.verify("U*U", password_hash)
    assert not passwords.verify("U*V", password_hash)
    assert passwords.is_costly(password_hash)
    assert not passwords.is_costly(GUEST_SHA256)


def test_bcrypt_looks_at_72_octets():
    password_hash = passwords.hash_password("a" * 100, passwords.BCRYPT)

    assert passwords.verify("a" * 100, password_hash)


@pytest.mark.parametrize("broken", ["", "!", "AAAA", "$2b$nonsense", "$2b$04$tooshort", "AAA"])
def test_broken_hash_matches_nothing(broken):
    assert not passwords.verify("", broken)
    assert not passwords.verify("secret", broken)


def test_legacy_prefix_is_dropped():
    assert passwords.check_hash("$5$" + GUEST_SHA256) == GUEST_SHA256
    assert passwords.verify("guest", "$5$" + GUEST_SHA256)


@pytest.mark.parametrize("name, full", [
    ("SHA256", passwords.SHA256), ("sha512", passwords.SHA512),
    ("rabbit_password_hashing_md5", passwords.MD5), ("bcrypt", passwords.BCRYPT),
    ("lavinmq_bcrypt", passwords.BCRYPT),
])
def test_algorithm_has_short_and_long_names(name, full):
    assert passwords.algorithm_named(name) == full


def test_unknown_algorithm_is_refused():
    with pytest.raises(ValueError, match="scrypt"):
        passwords.algorithm_named("scrypt")


@pytest.mark.parametrize("broken", ["not base64!", "AAAA"])
def test_hash_that_could_never_match_is_refused(broken):
    with pytest.raises(ValueError):
        passwords.check_hash(broken)


def test_a_hash_that_is_not_ascii_matches_nothing_and_is_refused():
    assert not passwords.verify("x", "\u00fc" * 48)
    with pytest.raises(ValueError):
        passwords.check_hash("\u00fc" * 48)
