"""What no log of a broker may tell: a traceback, its environment, or a password that a test used.

``BrokerProcess`` holds every line against this. A test that makes the broker fail on purpose says so
(``BrokerProcess(faults=True)``).
"""
import functools
import re
import sys

TRACEBACK = "Traceback (most recent call last)"
# In every broker's environment: what shows the environment shows this.
CANARY_NAME, CANARY = "GOMQ_TEST_CANARY", "kept-in-the-environment-5e0c"
# Shorter ones, and those that are their user's name, are found in lines that do not tell them.
LEAST_CHARACTERS = 6

_passwords = set()


def note_password(password, user=None):
    """From here on no broker's log may hold this password."""
    if isinstance(password, str) and len(password) >= LEAST_CHARACTERS and password not in (user, "correct"):
        _passwords.add(password)


def note_passwords_of_clients():
    """Note what clients log in with: pika and requests, where a test has imported them."""
    for module, name in (("pika.credentials", "PlainCredentials"), ("requests.auth", "HTTPBasicAuth")):
        credentials = getattr(sys.modules.get(module), name, None)
        if credentials is not None and not hasattr(credentials.__init__, "__wrapped__"):
            credentials.__init__ = _noting(credentials.__init__)


def _noting(begin):
    @functools.wraps(begin)
    def noted(self, user, password, *more, **options):
        note_password(password, user)
        begin(self, user, password, *more, **options)

    return noted


def told(lines, tracebacks_too=True):
    """The lines that tell too much, with what they tell in front."""
    found = []
    for line in lines:
        if tracebacks_too and TRACEBACK in line:
            found.append(f"a traceback: {line}")
        if CANARY in line:
            found.append(f"the environment: {line}")
        found += [
            f"a password: {line}"
            for password in _passwords if re.search(rf"(?<![\w-]){re.escape(password)}(?![\w-])", line)
        ]
    return found
