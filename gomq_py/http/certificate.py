"""Reads the expiry date of a certificate in a PEM file, for the health check.

Parses the fields up to that date only (X.509, RFC 5280 §4.1). The standard library parses only certificates
of peers.
"""
import re
import ssl
from datetime import datetime, timezone

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
# Fields of TBSCertificate before its validity, without the optional version, which has its own tag.
_BEFORE_VALIDITY = ("serial number", "signature", "issuer")
_VERSION = 0xA0
_UTC_TIME = 0x17


def end_s(path):
    """Return the expiry (Unix seconds) of the first certificate in a PEM file. Raises OSError, ValueError."""
    with open(path, encoding="ascii", errors="replace") as file:
        found = _PEM.search(file.read())
    if found is None:
        raise ValueError(f"no certificate in {path}")
    der = ssl.PEM_cert_to_DER_cert(found.group())
    _, start, _ = _element(der, 0)  # Certificate
    _, at, _ = _element(der, start)  # TBSCertificate
    tag, _, end = _element(der, at)
    if tag == _VERSION:
        at = end
    for _ in _BEFORE_VALIDITY:
        at = _element(der, at)[2]
    _, at, _ = _element(der, at)  # Validity
    tag, start, end = _element(der, _element(der, at)[2])  # notAfter, behind notBefore
    return _time(tag, der[start:end].decode("ascii"))


def _element(der, at):
    """Return (tag, start of contents, end of contents) of the DER element at ``at``. Raises ValueError."""
    try:
        tag, length, start = der[at], der[at + 1], at + 2
    except IndexError:
        raise ValueError("the certificate is cut short") from None
    if length & 0x80:
        octets = length & 0x7F
        length, start = int.from_bytes(der[start:start + octets], "big"), start + octets
    if start + length > len(der):
        raise ValueError("the certificate is cut short")
    return tag, start, start + length


def _time(tag, text):
    """Return the Unix seconds of a UTCTime or GeneralizedTime. UTCTime years 50 to 99 are 1950 to 1999."""
    if tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()
