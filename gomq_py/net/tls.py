"""TLS for listeners: makes contexts from certificate files, one per host name, and does handshakes. Imported
only when a certificate is configured, because the library costs a few megabytes.
"""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gevent
from gevent import ssl

from gomq_py.config.settings import Settings
from gomq_py.net import client_hello, openssl
from gomq_py.net import records as _records  # noqa: F401  (the first connection would import it)
from gomq_py.net.listener import BindError

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class TLSError(BindError):
    """TLS cannot be set up. The error's text is one line for the operator."""


@dataclass(frozen=True)
class TLSOptions:
    """The values from which a TLS context is made. Files are PEM.

        key                     empty: the certificate file also contains the key
        verify_peer             ask clients for a certificate signed by ``authorities``
        certificate_required    refuse clients that do not send a requested certificate
        kernel                  let the kernel encrypt and decrypt, if it can
    """

    certificate: str
    key: str = ""
    ciphers: str = ""
    least_version: str = "1.2"
    keylog_file: str = ""
    authorities: str = ""
    verify_peer: bool = False
    certificate_required: bool = True
    kernel: bool = False


def server_context(options: TLSOptions) -> Any:
    """Make the TLS context of a listener. Reads files: not for a serving event loop. Raises TLSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[options.least_version]
    _load_certificate(context, options.certificate, options.key)
    try:
        if options.ciphers:
            context.set_ciphers(options.ciphers)
    except ssl.SSLError as error:
        raise TLSError(f"no cipher of TLS 1.2 is left by {options.ciphers!r}") from error
    if options.verify_peer:
        if not options.authorities:
            # The system's authorities would let in anybody who can buy a certificate.
            raise TLSError("tls_verify_peer needs tls_ca_cert: the authorities that vouch for clients")
        _trust(context, options.authorities)
        context.verify_mode = ssl.CERT_REQUIRED if options.certificate_required else ssl.CERT_OPTIONAL
    if options.keylog_file:
        try:
            context.keylog_filename = options.keylog_file
        except OSError as error:
            raise TLSError(
                f"cannot write TLS keys to {options.keylog_file}: {error.strerror or error}"
            ) from error
    if options.kernel:
        context.options |= openssl.ENABLE_KTLS
    return context


def _load_certificate(context: Any, certificate: str, key: str) -> None:
    try:
        context.load_cert_chain(certificate, key or None, password=_no_password)
    except ssl.SSLError as error:
        raise TLSError(
            f"cannot use the certificate {certificate}{f' with the key {key}' if key else ''}: "
            f"{error.reason or error}"
        ) from error
    except (OSError, ValueError) as error:
        missing = key if key and not _readable(key) else certificate
        raise TLSError(
            f"cannot read the certificate or key {missing}: {getattr(error, 'strerror', None) or error}"
        ) from error


def client_context(authorities: str, certificate: str = "", key: str = "") -> Any:
    """Make the TLS context of a client that checks the server's certificate and name. Raises TLSError.
    ``authorities``: a file, or "" for the system's authorities. Reads files: not for a serving event loop.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = VERSIONS["1.2"]
    if authorities:
        _trust(context, authorities)
    else:
        context.load_default_certs()
    if certificate:
        _load_certificate(context, certificate, key)
    return context


def _trust(context: Any, authorities: str) -> None:
    try:
        context.load_verify_locations(authorities)
    except ssl.SSLError as error:
        raise TLSError(f"cannot use the authorities in {authorities}: {error.reason or error}") from error
    except OSError as error:
        raise TLSError(f"cannot read the authorities in {authorities}: {error.strerror or error}") from error


def _no_password() -> str:
    raise ValueError("the key is encrypted; a broker has nobody to ask for its password")


def _readable(path: str) -> bool:
    try:
        with open(path, "rb"):
            return True
    except OSError:
        return False


class Contexts:
    """The TLS contexts of one protocol: ``default``, and contexts by host name. In a host name ``*`` stands
    for the first label.
    """

    def __init__(self, default: Any, by_host: Mapping[str, Any] | None = None):
        self.default = default
        self._by_host = {host.lower().rstrip("."): context for host, context in (by_host or {}).items()}

    @property
    def has_hosts(self) -> bool:
        """Whether there are contexts for host names, besides ``default``."""
        return bool(self._by_host)

    def of(self, host: str) -> Any:
        """Return the TLS context for ``host``; the default context if ``host`` is unknown or ""."""
        found = self._by_host.get(host)
        if found is None and host:
            found = self._by_host.get("*." + host.partition(".")[2])
        return found or self.default


def contexts_of(settings: Settings, protocol: str) -> Contexts:
    """Return the Contexts for one protocol's port ("amqp", "http"). Raises TLSError. Reads files."""
    by_host = {}
    for host, section in settings.sni.items():
        try:
            by_host[host] = server_context(options_of(settings, section, protocol))
        except TLSError as error:
            raise TLSError(f"[sni:{host}]: {error}") from error
    return Contexts(server_context(options_of(settings)), by_host)


def options_of(settings: Settings, section: dict[str, Any] | None = None, protocol: str = "") -> TLSOptions:
    """Return the TLSOptions from the settings. A key in ``section``, the ``[sni:HOST]`` of a host name,
    overrides a setting. In a section, a key for one protocol (``amqp_tls_cert``) overrides the key for all.
    """
    said = section or {}

    def value(key: str) -> Any:
        return said.get(f"{protocol}_{key}", said.get(key, getattr(settings, key)))

    certificate = value("tls_cert")
    # A section's own certificate has its own key, in the key's file or in the certificate's.
    key = (
        value("tls_key") if certificate == settings.tls_cert
        else said.get(f"{protocol}_tls_key", said.get("tls_key", ""))
    )
    return TLSOptions(
        certificate, key, value("tls_ciphers"), value("tls_min_version"), value("tls_keylog_file"),
        value("tls_ca_cert"), value("tls_verify_peer"), value("tls_fail_if_no_peer_cert"), settings.tls_ktls,
    )


class Handshaker:
    """Does the TLS handshake of accepted sockets, each in its own greenlet. All handshakes share the time of
    ``turns`` (hub.turns).
    """

    # A step of a handshake takes most of a millisecond, and clients come back together after a network
    # failure.
    def __init__(self, contexts: Contexts, timeout_s: float, turns: Any):
        self._turns = turns
        self.replace(contexts, timeout_s)

    def replace(self, contexts: Contexts, timeout_s: float) -> None:
        """Set the TLS contexts and the time limit of handshakes for later connections."""
        self._contexts = contexts
        self._timeout_s = timeout_s

    def __call__(self, connection: Any) -> Any:
        """Shake hands. Returns the encrypted socket, which owns ``connection``. May switch greenlets.

        Raises OSError (for example SSLError) if the peer does not speak TLS, lacks a required certificate, or
        exceeds the time limit.
        """
        contexts = self._contexts
        with gevent.Timeout(self._timeout_s, OSError(f"TLS handshake not done within {self._timeout_s:g} s")):
            host = client_hello.asked_host(connection) if contexts.has_hosts else ""
            encrypted = contexts.of(host).wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False)
            try:
                self._shake_hands(encrypted)
            except BaseException:
                encrypted.close()
                raise
        openssl.take_turns(encrypted._sslobj)
        return encrypted

    def _shake_hands(self, encrypted: Any) -> None:
        """Do the handshake. Each step waits for its turn among other slow work. May switch greenlets."""
        while True:
            self._turns.take()
            try:
                encrypted._sslobj.do_handshake()
                return
            except ssl.SSLWantReadError:
                encrypted._wait(encrypted._read_event)
            except ssl.SSLWantWriteError:
                encrypted._wait(encrypted._write_event)

    def wrap_socket(self, connection: Any, server_side: bool = True) -> Any:
        """Shake hands. gevent's server uses this object as an SSL context, and calls only this method."""
        return self(connection)
