"""Client certificates: whose name is in one, and how it is shown.

Functions over what ``SSLSocket.getpeercert()`` gives.

Names are made as RabbitMQ makes them (``ssl_cert_login_from``), so that its users' names move over unchanged.
Only a certificate that the TLS library has verified comes here.
"""
from collections.abc import Mapping
from typing import Any

DISTINGUISHED_NAME, COMMON_NAME, ALTERNATIVE_NAME = (
    "distinguished_name", "common_name", "subject_alternative_name"
)
ALTERNATIVE_NAME_TYPES = {"dns": "DNS", "ip": "IP Address", "email": "email", "uri": "URI"}

# OpenSSL's long names -> what stands for them in a distinguished name;
# others appear by the name or number OpenSSL gives.
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
    """The name that a certificate logs in, or None where it has none of the kind that is asked for."""
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
    """Whom a verified client certificate on this socket names, "" if nobody;
    None where no certificate was shown.
    """
    certificate = socket.getpeercert() if hasattr(socket, "getpeercert") else None
    if not certificate:
        return None
    kind, index = settings.ssl_cert_login_san_type, settings.ssl_cert_login_san_index
    return user_name(certificate, settings.ssl_cert_login_from, kind, index) or ""


def distinguished_name(parts: Any) -> str:
    """A name as RFC 4514 writes it, the last part first: ``CN=client,O=Example``."""
    return ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in reversed(parts)
    )


def validity(certificate: Mapping[str, Any]) -> str:
    """From when until when, in OpenSSL's form."""
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
    """Control characters as the octets they are."""
    return f"\\{ord(character):02X}" if ord(character) < 32 or ord(character) == 127 else character
