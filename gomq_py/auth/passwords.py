"""Makes and verifies password hashes in RabbitMQ's form (gomq_py.salted_hash), and verifies bcrypt hashes.

The functions are safe in threads.

    $2a$, $2b$ or $2y$ ...                    bcrypt: slow on purpose (0.1 to 1 s), verified in a thread

A user with an empty hash cannot log in with a password.
"""
from gomq_py import salted_hash
# Re-exported for auth.
from gomq_py.salted_hash import DIGESTS, MD5, SALT_SIZE, SHA256, SHA512, octets_of  # noqa: F401

BCRYPT = "bcrypt"

_ALIASES = {"sha256": SHA256, "sha512": SHA512, "md5": MD5, "lavinmq_bcrypt": BCRYPT}
_BCRYPT_PREFIXES = ("$2a$", "$2b$", "$2y$")
# bcrypt refuses lower costs; higher ones take seconds and are not matched by ``spend``.
BCRYPT_COSTS = range(4, 16)
_BCRYPT_OCTETS = 72  # bcrypt reads no more; newer libraries refuse longer passwords instead of cutting


def algorithm_named(name):
    """Return a hashing algorithm's full name, from its full or short name. Raises ValueError."""
    name = _ALIASES.get(name.lower(), name.lower())
    if name not in DIGESTS and name != BCRYPT:
        raise ValueError(f"unknown password hashing algorithm {name!r}")
    return name


def hash_password(password, algorithm=SHA256):
    """Return a new salted hash of a password, as str."""
    if algorithm == BCRYPT:
        library = _library()
        return library.hashpw(octets_of(password)[:_BCRYPT_OCTETS], library.gensalt()).decode()
    return salted_hash.make(password, algorithm)


def check_hash(password_hash, algorithm=SHA256):
    """Return a hash in stored form: without white space at the ends, without legacy prefixes. Raises
    ValueError if no password can match the hash.
    """
    password_hash = password_hash.strip()
    if not password_hash or password_hash.startswith(_BCRYPT_PREFIXES):
        return password_hash
    if algorithm == BCRYPT:
        raise ValueError("not a bcrypt hash")
    return salted_hash.check(password_hash, algorithm)


def is_costly(password_hash):
    """Return whether verifying a password against this hash takes so long that it needs a thread."""
    return password_hash.startswith(_BCRYPT_PREFIXES)


def bcrypt_cost(password_hash):
    """Return the cost of a bcrypt hash (each increment doubles its time); 0 for any other hash."""
    digits = password_hash[4:6] if is_costly(password_hash) else ""
    cost = int(digits) if digits.isascii() and digits.isdigit() else 0
    return cost if cost in BCRYPT_COSTS else 0


def spend(costs):
    """Take as long as verifying passwords against bcrypt hashes of these costs."""
    for cost in costs:
        library = _library()
        library.hashpw(b"", library.gensalt(cost))


def verify(password, password_hash, algorithm=SHA256):
    """Return whether the password matches the hash, in equal time. A malformed hash gives False."""
    if not password_hash:
        return False
    if password_hash.startswith(_BCRYPT_PREFIXES):
        try:
            return _library().checkpw(octets_of(password)[:_BCRYPT_OCTETS], password_hash.encode())
        except ValueError:
            return False
    return algorithm in DIGESTS and salted_hash.verify(password, password_hash, algorithm)


def _library():
    """Return the bcrypt module. The late import saves 0.4 MB in brokers without such hashes."""
    import bcrypt

    return bcrypt
