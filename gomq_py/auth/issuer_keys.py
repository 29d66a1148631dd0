"""Fetches a token issuer's public keys by OpenID discovery, and caches them for as long as the issuer says.

    <issuer>/.well-known/openid-configuration  ->  jwks_uri  ->  {"keys": [JWK, ...]}
    (OpenID Connect Discovery 1.0 §4, RFC 7517 §5)

The keys are also fetched when a token names an unknown key. Fetches run in the thread pool, one at a time,
each limited in time and size. While expired keys are fetched again, logins use the expired ones, so that a
slow issuer does not delay them. Keys older than LIVES times their lifetime are not used. Keys that no
login needs are not fetched.
"""
import http.client
import json
import re
import time
import urllib.error
import urllib.request

import gevent
from gevent.lock import BoundedSemaphore

from gomq_py.auth.errors import LoginRefused
from gomq_py.hub.threads import in_thread
from gomq_py.observability.log import logger

LOG = logger("auth")

FETCH_TIMEOUT_S = 5
DOCUMENT_OCTETS_MAX = 1024 * 1024  # a key set has some kilobytes
# Limits the requests that tokens with made-up key ids cause at the issuer.
PAUSE_BETWEEN_FETCHES_S = 5
# While the issuer is unreachable, its keys stay valid for this many times their lifetime.
LIVES = 24
DISCOVERY = "/.well-known/openid-configuration"


class IssuerKeys:
    """Caches the public keys of one token issuer.

    ``ttl_s``: lifetime of keys if the issuer states none. ``fetch(url)`` returns (document, lifetime in
    seconds); the lifetime may be None. It runs in a thread, and raises OSError or ValueError.
    """

    def __init__(self, issuer, ttl_s, fetch=None, now_s=time.monotonic):
        self._issuer = issuer
        self._ttl_s = ttl_s
        self._fetch = fetch_json if fetch is None else fetch
        self._now_s = now_s
        self._turn = BoundedSemaphore(1)
        self._keys = {}
        self._fetched_s = self._tried_s = None
        self._life_s = ttl_s
        self._error = ""

    def key(self, kid):
        """Return the JWK with the id ``kid``, as a dict. May switch greenlets.

        Raises LoginRefused if the issuer does not have the key, or if the keys cannot be fetched.
        """
        age_s = None if self._fetched_s is None else self._now_s() - self._fetched_s
        if age_s is None or age_s > self._life_s * LIVES:
            self._refresh()
        elif kid not in self._keys:
            self._refresh()
        elif age_s > self._life_s:
            gevent.spawn(self._refresh).name = "issuer-keys"
        if not self._keys:
            raise LoginRefused(f"the keys of the token issuer {self._issuer} cannot be had: {self._error}")
        try:
            return self._keys[kid]
        except KeyError:
            raise LoginRefused(
                f"the token is signed with a key that its issuer {self._issuer} does not have"
            ) from None

    def _refresh(self):
        """Fetch the keys, unless this was tried within PAUSE_BETWEEN_FETCHES_S. May switch greenlets.

        After a failure, logs the error and keeps its text, which refusals then give as the reason.
        """
        with self._turn:
            if self._tried_s is not None and self._now_s() - self._tried_s < PAUSE_BETWEEN_FETCHES_S:
                return
            self._tried_s = self._now_s()
            try:
                keys, kept_s = in_thread(self._fetch_keys)
            except (OSError, ValueError) as error:
                self._error = str(error)
                LOG.error("the keys of the token issuer %s cannot be had: %s", self._issuer, error)
                if self._fetched_s is not None and self._now_s() - self._fetched_s > self._life_s * LIVES:
                    self._keys = {}
                return
            self._keys, self._error = keys, "it has none"
            # Fetched no earlier anyway. LIVES times no lifetime (max-age=0) would outlast no failed fetch.
            self._life_s = max(self._ttl_s if kept_s is None else kept_s, PAUSE_BETWEEN_FETCHES_S)
            self._fetched_s = self._now_s()

    def _fetch_keys(self):
        """Return ({kid: JWK}, seconds to keep them or None). For a thread. Raises OSError, ValueError."""
        discovered, _ = self._fetch(self._issuer.rstrip("/") + DISCOVERY)
        named = discovered.get("issuer")
        if not isinstance(named, str) or named.rstrip("/") != self._issuer.rstrip("/"):
            raise ValueError(f"its discovery document is of another issuer, {named!r}")
        document, kept_s = self._fetch(discovered.get("jwks_uri"))
        keys = document.get("keys")
        if not isinstance(keys, list):
            raise ValueError("its key set has no list of keys")
        return (
            {key["kid"]: key for key in keys if isinstance(key, dict) and isinstance(key.get("kid"), str)},
            kept_s,
        )


def fetch_json(url):
    """Fetch a JSON object. Return (object, seconds that Cache-Control allows keeping it, or None).

    Blocks: for a thread. Raises OSError, ValueError.
    """
    if not isinstance(url, str) or not url.startswith(("https://", "http://")):
        raise ValueError(f"{url!r} is not an https address")
    try:
        with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as answer:
            octets = answer.read(DOCUMENT_OCTETS_MAX + 1)
            cache_control = answer.headers.get("Cache-Control", "")
    except urllib.error.HTTPError as error:
        raise OSError(f"{url} answers {error.code}") from error
    except http.client.HTTPException as error:
        raise OSError(f"{url} is no address, or does not speak HTTP: {type(error).__name__}") from error
    if len(octets) > DOCUMENT_OCTETS_MAX:
        raise ValueError(f"{url} answers more than {DOCUMENT_OCTETS_MAX} bytes")
    try:
        document = json.loads(octets)
    except RecursionError:
        raise ValueError(f"{url} answers JSON that is too deep to be read") from None
    if not isinstance(document, dict):
        raise ValueError(f"{url} answers no JSON object")
    max_age = re.search(r"\bmax-age=(\d{1,9})\b", cache_control)
    return document, int(max_age[1]) if max_age else None
