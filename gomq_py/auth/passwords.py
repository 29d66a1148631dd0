"""Makes and verifies password hashes: RabbitMQ's (gomq_py.salted_hash) and bcrypt's. Thread-safe.

A hash that begins with $2a$, $2b$ or $2y$ is bcrypt's. Verifying it takes 0.1 to 1 s on purpose, and callers
do so in a thread. A user with an empty hash cannot log in with a password.
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
    """Return the full name of a hashing algorithm, given the full or a short name. Raises ValueError."""
    name = _ALIASES.get(name.lower(), name.lower())
    if name not in DIGESTS and name != BCRYPT:
        raise ValueError(f"unknown password hashing algorithm {name!r}")
    return name


def hash_password(password, algorithm=SHA256):
    """Return a new salted hash of a password (str or bytes), as str."""
    if algorithm == BCRYPT:
        library = _library()
        return library.hashpw(octets_of(password)[:_BCRYPT_OCTETS], library.gensalt()).decode()
    return salted_hash.make(password, algorithm)


def check_hash(password_hash, algorithm=SHA256):
    """Return a hash in stored form: without white space at the ends, without legacy prefixes.

    Raises ValueError for a malformed hash. A hash with a prefix of bcrypt is not checked.
    """
    password_hash = password_hash.strip()
    if not password_hash or password_hash.startswith(_BCRYPT_PREFIXES):
        return password_hash
    if algorithm == BCRYPT:
        raise ValueError("not a bcrypt hash")
    return salted_hash.check(password_hash, algorithm)


def is_costly(password_hash):
    """Return whether this is a bcrypt hash, against which a password must be verified in a thread."""
    return password_hash.startswith(_BCRYPT_PREFIXES)


def bcrypt_cost(password_hash):
    """Return the cost of a bcrypt hash (each increment doubles its time); 0 for any other hash."""
    digits = password_hash[4:6] if is_costly(password_hash) else ""
    cost = int(digits) if digits.isascii() and digits.isdigit() else 0
    return cost if cost in BCRYPT_COSTS else 0


def spend(costs):
    """Take as long as verifying a password against bcrypt hashes of all these costs. Blocks: for a thread."""
    for cost in costs:
        library = _library()
        library.hashpw(b"", library.gensalt(cost))


def verify(password, password_hash, algorithm=SHA256):
    """Return whether the password matches the hash (in constant time). A malformed hash gives False."""
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
