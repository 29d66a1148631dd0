"""Certificates: TLS contexts from the settings, the broker's own and one per ``[sni:HOST]`` section.

Beside the launcher. A section inherits the keys it does not set; a key for one protocol (``amqp_tls_cert``)
overrides the key for all. Imports the TLS library.
"""
from typing import Any

from gomq_py.config.settings import Settings
from gomq_py.net.tls import Contexts, TLSError, TLSOptions, server_context


def contexts(settings: Settings, protocol: str) -> Contexts:
    """The contexts of one protocol's port ("amqp", "http"). Raises TLSError. Reads files."""
    by_host = {}
    for host, section in settings.sni.items():
        try:
            by_host[host] = server_context(options(settings, section, protocol))
        except TLSError as error:
            raise TLSError(f"[sni:{host}]: {error}") from error
    return Contexts(server_context(options(settings)), by_host)


def options(settings: Settings, section: dict[str, Any] | None = None, protocol: str = "") -> TLSOptions:
    """TLS options from the settings, overridden by the section of a host name."""
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
