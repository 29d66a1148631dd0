"""OAuth 2: accepts JSON Web Tokens as passwords, and makes users from their claims.

PyJWT checks signature (RS256, ES256; the key by ``kid``), issuer, expiry and audience. Name, tags and rights
are taken from the claims. After the broker's prefix, scopes have these forms:

    tag:NAME                                     a management tag
    configure|read|write:VHOST/NAME[/KEY]        rights on queues and exchanges, or routing keys; globs in
                                                 which * matches any text, percent-encoded

The token itself is neither logged nor kept.
"""
import time
from urllib.parse import unquote

import jwt

from gomq_py.auth.errors import LoginRefused
from gomq_py.auth.issuer_keys import IssuerKeys
from gomq_py.auth.permissions import CONFIGURE, READ, WRITE, Permission
from gomq_py.auth.users import TAGS, User
from gomq_py.patterns import Globs

ALGORITHMS = ("RS256", "ES256")
VERBS = (CONFIGURE, WRITE, READ)
# Rights cached per user by vhost, and by exchange; a full cache is cleared.
CACHED_VHOSTS = 1024


class Claims:
    """The content of a verified token that the broker uses. ``expires_at_s``: Unix time.

    ``scopes``: list of (verb, vhost glob, name glob, routing key glob or None).
    """

    __slots__ = ("username", "tags", "scopes", "expires_at_s")

    def __init__(self, username, tags, scopes, expires_at_s):
        self.username = username
        self.tags = tags
        self.scopes = scopes
        self.expires_at_s = expires_at_s


class TokenUser(User):
    """A user made from a token, with the token's rights until it expires or is renewed.

    The rights hold in every vhost that a scope matches. ``local_users``: names of local users, whom this user
    must not impersonate.
    """

    __slots__ = ("scopes", "expires_at_s", "_by_vhost", "_by_exchange", "_local_users")

    of_token = True

    def __init__(self, claims, state, local_users=()):
        super().__init__(claims.username, "", "", claims.tags, state)
        self._local_users = local_users
        self._take(claims)

    def may_sign(self, user_id):
        """Return whether the user may publish messages with this user_id property.

        This must be the user's own name, and not also a local user's. With the tag impersonator, any name is
        allowed.
        """
        return "impersonator" in self.tags or user_id == self.name and user_id not in self._local_users

    def renew(self, claims):
        """Take rights and expiry of a newer token. Raises LoginRefused if it is another user's token."""
        if claims.username != self.name:
            raise LoginRefused(f"the new token is of user '{claims.username}', not of '{self.name}'")
        self._take(claims)
        self.state.revision += 1

    def permission(self, vhost):
        """Return the Permission in this vhost; None if no scope of the token matches the vhost."""
        try:
            return self._by_vhost[vhost]
        except KeyError:
            if len(self._by_vhost) >= CACHED_VHOSTS:
                self._by_vhost.clear()
            permission = self._by_vhost[vhost] = self._permission(vhost)
            return permission

    def topic_permission(self, vhost, exchange):
        """Return the TokenTopicPermission at this exchange; None if no scope limits its routing keys."""
        try:
            return self._by_exchange[vhost, exchange]
        except KeyError:
            if len(self._by_exchange) >= CACHED_VHOSTS:
                self._by_exchange.clear()
            limit = self._by_exchange[vhost, exchange] = self._topic_permission(vhost, exchange)
            return limit

    @property
    def seconds_left(self):
        """Seconds until the token expires; negative if it has expired."""
        return self.expires_at_s - time.time()

    def _take(self, claims):
        self.tags = claims.tags
        self.scopes = claims.scopes
        self.expires_at_s = claims.expires_at_s
        self._by_vhost = {}
        self._by_exchange = {}

    def _permission(self, vhost):
        names = {verb: [] for verb in VERBS}
        for verb, vhost_glob, name_glob, _ in self.scopes:
            if Globs((vhost_glob,)).found_in(vhost):
                names[verb].append(name_glob)
        if not any(names.values()):
            return None
        configure, write, read = (names[verb] for verb in VERBS)
        return Permission(self.name, vhost, configure, write, read, make=Globs)

    def _topic_permission(self, vhost, exchange):
        keys = {WRITE: [], READ: []}
        reaching = [
            scope
            for scope in self.scopes
            if Globs((scope[1],)).found_in(vhost) and Globs((scope[2],)).found_in(exchange)
        ]
        if all(key_glob is None for _, _, _, key_glob in reaching):
            return None
        for verb, _, _, key_glob in reaching:
            if verb in keys:
                keys[verb].append("*" if key_glob is None else key_glob)
        return TokenTopicPermission(keys)


class TokenTopicPermission:
    """The routing keys that a token allows at one topic exchange, as globs. Used like a TopicPermission."""

    __slots__ = ("_globs",)

    def __init__(self, keys):
        """``keys``: {WRITE: list of globs of routing keys, READ: the same}."""
        self._globs = {verb: Globs(globs) for verb, globs in keys.items()}

    def allows(self, verb, routing_key, client_id=None):
        """Return whether the token grants ``verb`` (WRITE, READ) for the key. ``client_id`` is not used."""
        return self._globs[verb].found_in(routing_key)


class Tokens:
    """Verifies tokens as the [oauth] settings say, and makes their users.

    ``keys``: an IssuerKeys, by default for the issuer in the settings. ``local_users``: the broker's own
    Users. ``make_state()`` makes the ``state`` of a TokenUser (see users.User).
    """

    def __init__(self, settings, make_state, keys=None, local_users=()):
        self._settings = settings
        self._make_state = make_state
        self._local_users = local_users
        self._keys = (
            IssuerKeys(settings.oauth_issuer, settings.oauth_jwks_cache_ttl) if keys is None else keys
        )

    def login(self, token):
        """Return the TokenUser of a valid token (str). Raises LoginRefused. May switch greenlets."""
        return TokenUser(self.verify(token), self._make_state(), self._local_users)

    def verify(self, token):
        """Return the Claims of a valid token (str). Raises LoginRefused. May switch greenlets."""
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in ALGORITHMS:
                raise LoginRefused(
                    f"the token is signed with {header.get('alg')!r}; {' and '.join(ALGORITHMS)} are accepted"
                )
            if not isinstance(header.get("kid"), str):
                raise LoginRefused("the token does not name its key (kid)")
            key = jwt.PyJWK(self._keys.key(header["kid"]))
            if key.algorithm_name != header["alg"]:
                raise LoginRefused(
                    f"the token is signed with {header['alg']}, its key is for {key.algorithm_name}"
                )
            payload = jwt.decode(token, key, algorithms=[key.algorithm_name], options={
                "require": ["exp", "iss"], "verify_aud": False, "verify_iat": False, "verify_sub": False,
                "verify_jti": False,
            })
        except jwt.PyJWTError as error:
            raise LoginRefused(f"the token is not valid: {error}") from None
        except (TypeError, ValueError):
            # for text that is not ASCII or a malformed key the library raises no error of its own
            raise LoginRefused("the token or the key of its issuer is malformed") from None
        self._check_issuer(payload)
        self._check_audience(payload)
        return self._claims(payload)

    def _check_issuer(self, payload):
        issuer = payload.get("iss")
        if not isinstance(issuer, str) or issuer.rstrip("/") != self._settings.oauth_issuer.rstrip("/"):
            raise LoginRefused("the token is of another issuer")

    def _check_audience(self, payload):
        settings = self._settings
        wanted = settings.oauth_audience or settings.oauth_resource_server_id
        if not settings.oauth_verify_aud or not wanted:
            return
        audience = payload.get("aud")
        if wanted not in (audience if isinstance(audience, list) else [audience]):
            raise LoginRefused(f"the token is not for the audience '{wanted}'")

    def _claims(self, payload):
        names = (payload.get(claim) for claim in self._settings.oauth_preferred_username_claims)
        username = next((name for name in names if isinstance(name, str) and name), None)
        if username is None:
            raise LoginRefused(
                "the token has no user name in " + ", ".join(self._settings.oauth_preferred_username_claims)
            )
        tags, scopes = [], []
        for scope in self._own_scopes(payload):
            kind, _, rest = scope.partition(":")
            if kind == "tag" and rest in TAGS:
                tags.append(rest)
            elif kind in VERBS:
                parts = [unquote(part) for part in rest.split("/")]
                if len(parts) in (2, 3):
                    scopes.append((kind, parts[0], parts[1], parts[2] if len(parts) == 3 else None))
        return Claims(username, tuple(dict.fromkeys(tags)), scopes, float(payload["exp"]))

    def _own_scopes(self, payload):
        """Return a list of the token's scopes for this broker, without the broker's prefix."""
        settings = self._settings
        server = settings.oauth_resource_server_id
        found = _words(payload.get("scope"))
        access = payload.get("resource_access")
        if server and isinstance(access, dict) and isinstance(access.get(server), dict):
            found += _words(access[server].get("roles"))
        for claim in settings.oauth_additional_scopes_keys:
            value = payload.get(claim)
            found += _words(value.get(server) if isinstance(value, dict) else value)
        prefix = settings.oauth_scope_prefix or (f"{server}." if server else "")
        return [scope.removeprefix(prefix) for scope in found if scope.startswith(prefix)]


def looks_like_token(password):
    """Return whether a password looks like a JSON Web Token: it has two dots, which is rare."""
    return password.count(b"." if isinstance(password, bytes) else ".") == 2


def _words(value):
    if isinstance(value, str):
        return value.split()
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []
