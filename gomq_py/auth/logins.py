"""Checks names, passwords, certificates and tokens for every protocol.

The backends (the broker's users, OAuth tokens) are asked in the order of ``auth_backends``. Costly hashes and
fetches of issuers' keys run in the thread pool.
"""
from gomq_py.auth import passwords
from gomq_py.auth.errors import BackendError, LoginRefused, LoopbackOnly
from gomq_py.auth.hash_pool import HashPool
from gomq_py.auth.login_throttle import LoginThrottle

LOCAL, OAUTH = "local", "oauth"
_ALIASES = {"basic": LOCAL, "internal": LOCAL, "oauth2": OAUTH}


class Logins:
    """Checks logins. ``users``: the broker's own Users. ``tokens``: a Tokens, or None without OAuth."""

    def __init__(self, users, backends=(LOCAL,), tokens=None):
        self._users = users
        self._tokens = tokens
        self._backends = backends
        self._throttle = LoginThrottle()
        self._hashes = HashPool()

    def login(self, name, password, address):
        """Return the User with this name and password (str or bytes). Raises LoginRefused. May switch
        greenlets.

        The user must be allowed to log in from this address. After too many failures every call waits,
        whether the password is correct or wrong.
        """
        with self._throttle.attempt(name, address) as attempt:
            try:
                user = self._checked(name, password, address)
            except LoopbackOnly:
                attempt.void()
                raise
            attempt.succeeded()
            return user

    def login_at_once(self, name, password, address):
        """Return the User if the login can be checked without a wait or costly hash, otherwise None.

        After None, call ``login()``. A User is returned if the password was verified earlier in this run, the
        name has logged in from this address before and has no remembered failures there, and the first
        backend is LOCAL.
        """
        if self._backends[0] == LOCAL and self._throttle.is_known(name, address):
            return self._users.get_verified(name, password, address)
        return None

    def _checked(self, name, password, address):
        reason = ""
        for backend in self._backends:
            try:
                return (
                    self._by_password(name, password, address) if backend == LOCAL
                    else self._by_token(name, password)
                )
            except LoopbackOnly:
                raise
            except LoginRefused as error:
                reason = f"{reason}; {error}" if reason else str(error)
        raise LoginRefused(reason)

    def login_certified(self, name, address):
        """Return the local User whom a verified client certificate names. Raises LoginRefused."""
        user = self._users.get(name)
        if user is None:
            raise LoginRefused(f"user '{name}', whom the client's certificate names, does not exist")
        if not self._users.may_come_from(name, address):
            raise LoopbackOnly(f"user '{name}' may log in from this machine only")
        return user

    def login_with_token(self, token):
        """Return the TokenUser for a token. Raises LoginRefused, also if OAuth is not configured.

        May switch greenlets.
        """
        if self._tokens is None:
            raise LoginRefused("tokens are not accepted: auth_backends does not name oauth")
        return self._tokens.login(token)

    def renew(self, user, token):
        """Give a TokenUser the rights and expiry of a newer token. Raises LoginRefused.

        May switch greenlets.
        """
        user.renew(self._tokens.verify(token))

    def ask_ahead(self, name, password, address=""):
        """Check a password against the user's costly hash in a thread, and remember a match.

        May switch greenlets. Callers of Users.set_user() call this first, because set_user() itself compares
        no password with a costly hash.
        """
        if self._users.is_costly(name, password):
            self._matching_hash(name, password, address)

    def _matching_hash(self, name, password, address):
        users = self._users
        if users.is_costly(name, password):
            return self._hashes.run(address, users.matching_hash, name, password)
        return users.matching_hash(name, password)

    def _by_password(self, name, password, address):
        users = self._users
        matched = self._matching_hash(name, password, address)
        if matched is None:
            costs = users.costs_left(name)
            if costs:
                self._hashes.run(address, passwords.spend, costs)
            raise LoginRefused(f"user '{name}' gave a wrong password or does not exist")
        if not users.may_come_from(name, address):
            raise LoopbackOnly(f"user '{name}' may log in from this machine only")
        user = users.get(name)
        if user is None or not users.is_hash_of(name, matched):
            raise LoginRefused(f"user '{name}' was deleted or given another password while logging in")
        return user

    def _by_token(self, name, password):
        # imported here: a broker without OAuth needs no library
        from gomq_py.auth.tokens import looks_like_token
        if not looks_like_token(password):
            raise LoginRefused(f"what user '{name}' gave is not a token")
        return self._tokens.login(password)


def backends_named(names):
    """Return the named backends, LOCAL or OAUTH, as a tuple; (LOCAL,) without names. Raises BackendError."""
    backends = tuple(_ALIASES.get(name.lower(), name.lower()) for name in names) or (LOCAL,)
    for name, backend in zip(names, backends):
        if backend not in (LOCAL, OAUTH):
            raise BackendError(f"auth_backends: {name!r} is none; there are local and oauth")
    return backends


def make_logins(users, settings, make_state):
    """Return the Logins that the settings describe. Raises BackendError, which says what to set or install.

    ``make_state()`` makes the ``state`` of a TokenUser (see users.User).
    """
    backends = backends_named(settings.auth_backends)
    if OAUTH not in backends:
        return Logins(users, backends)
    if not settings.oauth_issuer.startswith(("https://", "http://")):
        raise BackendError(
            "auth_backends has oauth, which needs the address of the tokens' issuer: set issuer in [oauth]"
        )
    if settings.oauth_verify_aud and not (settings.oauth_audience or settings.oauth_resource_server_id):
        raise BackendError(
            "oauth: set audience or resource_server_id in [oauth], "
            "or verify_aud = false to accept tokens made for others"
        )
    try:
        from gomq_py.auth.tokens import Tokens
    except ImportError as error:
        raise BackendError(
            f"auth_backends has oauth, which needs a library that is missing ({error.name}): "
            "pip install 'gomq-py[oauth]'"
        ) from error
    return Logins(users, backends, Tokens(settings, make_state, local_users=users))
