"""Sign-on: settings that a page needs to log in at the issuer of tokens ([oauth]), and the sources it may
then connect to.

The page asks the issuer for a code (OAuth 2.0, RFC 6749 §4.1, with PKCE, RFC 7636) and exchanges it for a
token itself; the broker sees only the token, as from any client. A client id is no secret.
"""
from urllib.parse import urlsplit

from gomq_py.auth.logins import OAUTH, backends_named

# Characters that would end a source in a Content-Security-Policy.
_SEPARATORS = " ;,'\"\t\r\n"


def settings(given):
    """The sign-on settings for /api/auth; None if tokens are not accepted, or pages have no client id."""
    if not given.oauth_client_id or OAUTH not in backends_named(given.auth_backends) or not origins(given):
        return None
    return {
        "oauth_client_id": given.oauth_client_id, "oauth_provider_url": given.oauth_issuer,
        "oauth_scopes": given.oauth_mgmt_scopes, "oauth_redirect_url": given.oauth_mgmt_base_url,
    }


def origins(given):
    """The issuer's origin, in a tuple; () if a policy could not name it."""
    try:
        parts = urlsplit(given.oauth_issuer)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return ()
    origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    if parts.scheme not in ("http", "https") or not host or any(mark in origin for mark in _SEPARATORS):
        return ()
    return (origin,) if origin.isascii() and origin.isprintable() else ()


def policy_with(policy, given):
    """A Content-Security-Policy that lets the page connect to the issuer, if sign-on is set up."""
    if settings(given) is None:
        return policy
    return policy.replace("connect-src 'self'", " ".join(("connect-src 'self'", *origins(given))))
