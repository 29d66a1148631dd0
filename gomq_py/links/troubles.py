"""Troubles: error texts for the user who set a link, which name the error and its remedy, without secrets.

Does no I/O. OpenSSL's texts do not say what to do. A peer's texts may repeat secrets that were sent to it.
"""
import json
import re
import ssl
import time
from base64 import urlsafe_b64decode
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from gomq_py.client.errors import ClosedError
from gomq_py.links import uris

# OpenSSL's X509_V_ERR_*.
_NOT_YET_VALID, _EXPIRED = 9, 10
# Unknown authority: unable to get issuer, self-signed, unable to get local issuer, to verify leaf.
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)
_OTHER_HOST = (62, 64)
_REVOKED = 23
_CHAIN_TOO_LONG = 22
_ADVICE = {
    _NOT_YET_VALID: "one of the clocks is wrong, or the certificate has to be made anew there",
    _EXPIRED: "it is to be renewed there",
    **dict.fromkeys(_UNKNOWN_AUTHORITY, "cacertfile names the authority that has signed it"),
    **dict.fromkeys(_OTHER_HOST, "the URI, or server_name_indication, has a name that it is for"),
    _REVOKED: "it is to be renewed there",
    _CHAIN_TOO_LONG: "depth allows more authorities in between",
}
# OpenSSL's reasons for a peer that does not speak TLS; names differ by version.
_NO_TLS = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
# Alerts of a peer that was sent no certificate, or an unacceptable one.
_WANTS_CERTIFICATE = ("CERTIFICATE_REQUIRED", "ALERT_BAD_CERTIFICATE", "ALERT_UNKNOWN_CA")
# Reply codes of a refused login, and of a connection closed because its token expired.
_OF_LOGINS = (320, 403)
# A path segment that looks like a word and not like a key. The path as a whole counts as a key.
_WORD = re.compile("[a-z]{1,15}")
# Shorter texts occur in too many words by chance, and are no secret.
_SECRET_CHARACTERS_LEAST = 4


def told(error: Any, uri: str) -> str:
    """Return the error text that users see for one end of a link, without the secrets in its ``uri``."""
    text = explained(error)
    try:
        link_uri = uris.parse(uri, uris.DESTINATIONS)
    except uris.URIError:  # the URIError's own text, which shows no secret
        return text
    text = without_secrets_of(link_uri, text)
    if isinstance(error, ClosedError) and error.reply_code in _OF_LOGINS:
        text += _of_token(link_uri.password or link_uri.user or "")
    return text


def explained(error: Any) -> str:
    """Return the error's text, with a remedy for TLS errors."""
    if isinstance(error, ssl.SSLCertVerificationError):
        what = getattr(error, "verify_message", "") or str(error)
        advice = _ADVICE.get(getattr(error, "verify_code", 0))
        return f"TLS: the certificate of that end is refused: {what}" + (f": {advice}" if advice else "")
    text = str(error)
    if isinstance(error, ssl.SSLError) and any(reason in text for reason in _NO_TLS):
        return f"TLS: that port does not speak it ({error.reason or error}): the URI begins with " \
            "amqp:// or http://, or names the port that does"
    if isinstance(error, TimeoutError) and "handshake" in text:
        return "TLS: that end does not answer the handshake: its port may not be for TLS"
    if any(reason in text for reason in _WANTS_CERTIFICATE):
        return f"TLS: that end refuses our certificate, or wants one: certfile and keyfile name it ({text})"
    return text


def without_secrets_of(link_uri: uris.LinkURI, text: str) -> str:
    """Return ``text`` with the secrets of this URI replaced by ***."""
    for secret in _secrets_of(link_uri):
        if len(secret) >= _SECRET_CHARACTERS_LEAST:
            text = text.replace(secret, "***")
    return text


def _secrets_of(link_uri: uris.LinkURI) -> list[str]:
    """Return all forms in which a URI's secrets may be sent or written, as a list, longest first."""
    secrets = {link_uri.options.get("password", "")}
    if link_uri.password != link_uri.user:  # guest is no secret and occurs in many texts
        secrets.add(link_uri.password or "")
    if not link_uri.password and link_uri.user != "guest":  # a token may be the user's name
        secrets.add(link_uri.user or "")
    if link_uri.scheme in uris.HTTP:  # path and query may be keys
        path, _, query = link_uri.path.partition("?")
        secrets.add(path)
        secrets.update(part for part in path.split("/") if not _WORD.fullmatch(part))
        for part in query.split("&"):
            secrets.add(part.partition("=")[2] or part)
    forms = (str, quote, quote_plus, unquote, unquote_plus)
    written = {form(secret) for secret in secrets for form in forms}
    return sorted(written, key=len, reverse=True)


def _of_token(password: str) -> str:
    """Return a hint if the password is an expired token (JWT), else ""."""
    parts = password.split(".")
    if len(parts) != 3:
        return ""
    try:
        expires_s = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))["exp"]
        if expires_s > time.time():
            return ""
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(expires_s))
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, OSError, RecursionError):
        return ""
    return f": the token in the URI has expired at {moment} UTC, set the link anew with another one"
