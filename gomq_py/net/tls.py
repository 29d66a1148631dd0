"""TLS for listeners: a server context from certificate files, and the handshake of one connection.

Imported by the launcher only when a certificate is configured, because the library costs a few megabytes. Knows no protocol.
"""
from collections.abc import Callable
from typing import Any

import gevent
from gevent import ssl

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class TLSError(Exception):
    """TLS cannot be set up, as one line for the operator."""


def server_context(certificate: str, key: str = "", ciphers: str = "", least_version: str = "1.2", keylog_file: str = "") -> Any:
    """The context of a TLS listener, from PEM files; without ``key`` the certificate file holds it. Raises TLSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[least_version]
    try:
        context.load_cert_chain(certificate, key or None, password=_no_password)
    except ssl.SSLError as error:
        raise TLSError(f"cannot use the certificate {certificate}{f' with the key {key}' if key else ''}: {error.reason or error}") from error
    except (OSError, ValueError) as error:
        missing = key if key and not _readable(key) else certificate
        raise TLSError(f"cannot read the certificate or key {missing}: {getattr(error, 'strerror', None) or error}") from error
    try:
        if ciphers:
            context.set_ciphers(ciphers)
    except ssl.SSLError as error:
        raise TLSError(f"no cipher of TLS 1.2 is left by {ciphers!r}") from error
    if keylog_file:
        context.keylog_filename = keylog_file
    return context


def _no_password() -> str:
    """Asked for the password of an encrypted key; the library would ask the terminal."""
    raise ValueError("the key is encrypted; a broker has nobody to ask for its password")


def _readable(path: str) -> bool:
    try:
        with open(path, "rb"):
            return True
    except OSError:
        return False


def handshaker(context: Any, timeout_s: float) -> Callable[[Any], Any]:
    """What a Listener calls on an accepted socket: the TLS handshake, in the connection's own greenlet. Its result takes the socket over.

    Raises OSError (SSLError is one) when the peer does not speak TLS or is not done within ``timeout_s``. May switch.
    """

    def handshake(connection: Any) -> Any:
        with gevent.Timeout(timeout_s, OSError(f"TLS handshake not done within {timeout_s:g} s")):
            return context.wrap_socket(connection, server_side=True)

    return handshake
