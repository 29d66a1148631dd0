"""Finds the user name in a client certificate, and shows certificates as text.

The functions take the result of ``SSLSocket.getpeercert()``, which the TLS library has verified. User names
are made as in RabbitMQ (``ssl_cert_login_from``), so that users who move from RabbitMQ keep their names.
"""
from collections.abc import Mapping
from typing import Any

DISTINGUISHED_NAME, COMMON_NAME, ALTERNATIVE_NAME = (
    "distinguished_name", "common_name", "subject_alternative_name"
)
ALTERNATIVE_NAME_TYPES = {"dns": "DNS", "ip": "IP Address", "email": "email", "uri": "URI"}

# OpenSSL's long names -> short names in a distinguished name; other parts keep OpenSSL's name or number.
_SHORT = {
    "commonName": "CN", "countryName": "C", "localityName": "L", "stateOrProvinceName": "ST",
    "organizationName": "O", "organizationalUnitName": "OU", "streetAddress": "STREET",
    "domainComponent": "DC", "userId": "UID", "emailAddress": "EMAILADDRESS", "surname": "SN",
    "givenName": "GIVENNAME", "initials": "INITIALS", "generationQualifier": "GENERATIONQUALIFIER",
    "title": "TITLE", "serialNumber": "SERIALNUMBER", "pseudonym": "PSEUDONYM",
}
_SPECIAL = frozenset(',+"\\<>;')


def user_name(
    certificate: Mapping[str, Any], login_from: str, alternative_type: str = "dns", alternative_index: int = 0
) -> str | None:
    """Return the user name in a certificate; None if it has no name of the kind ``login_from``."""
    if login_from == DISTINGUISHED_NAME:
        return distinguished_name(certificate.get("subject", ())) or None
    if login_from == COMMON_NAME:
        names = [
            value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"
        ]
        return ",".join(names) or None
    wanted = ALTERNATIVE_NAME_TYPES[alternative_type]
    names = [value for name, value in certificate.get("subjectAltName", ()) if name == wanted]
    return names[alternative_index] if alternative_index < len(names) else None


def certified_name(socket: Any, settings: Any) -> str | None:
    """Return the user name in the verified client certificate of this socket.

    None without a certificate; "" if the certificate has no name of the configured kind.
    """
    certificate = socket.getpeercert() if hasattr(socket, "getpeercert") else None
    if not certificate:
        return None
    kind, index = settings.ssl_cert_login_san_type, settings.ssl_cert_login_san_index
    return user_name(certificate, settings.ssl_cert_login_from, kind, index) or ""


def distinguished_name(parts: Any) -> str:
    """Return a distinguished name in RFC 4514's form, the last part first: ``CN=client,O=Example``."""
    return ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in reversed(parts)
    )


def validity(certificate: Mapping[str, Any]) -> str:
    """Return the period in which a certificate is valid, as the text "START - END" with OpenSSL's times."""
    return f"{certificate.get('notBefore', '')} - {certificate.get('notAfter', '')}"


def _escaped(value: str) -> str:
    escaped = "".join(
        "\\" + character if character in _SPECIAL else _visible(character) for character in value
    )
    if value.startswith((" ", "#")):
        escaped = "\\" + escaped
    if value.endswith(" ") and len(value) > 1:
        escaped = escaped[:-1] + "\\ "
    return escaped


def _visible(character: str) -> str:
    return f"\\{ord(character):02X}" if ord(character) < 32 or ord(character) == 127 else character
