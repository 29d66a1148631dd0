"""Whose name is in a client's certificate.

Certificates are real: made by trustme or cryptography, read back by the ssl module.
"""
import datetime
import ssl

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gomq_py.auth.certificates import distinguished_name, user_name, validity

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def decoded(tmp_path, *parts, alternatives=()):
    """What getpeercert() says of a certificate whose subject has these parts, each a list of (oid, value)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([
        x509.RelativeDistinguishedName([x509.NameAttribute(oid, value) for oid, value in part])
        for part in parts
    ])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(
        key.public_key()
    ).serial_number(1)
    builder = builder.not_valid_before(NOW).not_valid_after(NOW + datetime.timedelta(days=1))
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    path = tmp_path / "certificate.pem"
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return ssl._ssl._test_decode_cert(str(path))


def test_distinguished_name_is_written_last_part_first(tmp_path):
    """The order of ``openssl x509 -subject -nameopt RFC2253``,
    which is what RabbitMQ's users have as names.
    """
    parts = (
        [(NameOID.COUNTRY_NAME, "SE")], [(NameOID.ORGANIZATION_NAME, "Example")],
        [(NameOID.COMMON_NAME, "client")],
    )
    certificate = decoded(tmp_path, *parts)

    assert user_name(certificate, "distinguished_name") == "CN=client,O=Example,C=SE"


@pytest.mark.parametrize("value, written", [
    ("a,b", r"a\,b"), ('q"u+o<t>e;s\\', r'q\"u\+o\<t\>e\;s\\'), (" front", r"\ front"), ("back ", r"back\ "),
    ("#hash", r"\#hash"),
    ("a#b c", "a#b c"), ("line\nbreak", r"line\0Abreak"), ("Zoë", "Zoë"), (" ", "\\ "),
])
def test_special_characters_of_a_distinguished_name_are_escaped(tmp_path, value, written):
    certificate = decoded(tmp_path, [(NameOID.COMMON_NAME, value)])

    assert user_name(certificate, "distinguished_name") == "CN=" + written


def test_part_of_several_values_is_joined_by_plus():
    assert distinguished_name(
        ((("commonName", "a"), ("userId", "7")), (("1.2.3.4", "x"),))
    ) == "1.2.3.4=x,CN=a+UID=7"


def test_common_names_are_joined(tmp_path):
    one = decoded(tmp_path, [(NameOID.ORGANIZATION_NAME, "Example")], [(NameOID.COMMON_NAME, "client")])
    two = decoded(tmp_path, [(NameOID.COMMON_NAME, "a")], [(NameOID.COMMON_NAME, "b")])

    assert user_name(one, "common_name") == "client"
    assert user_name(two, "common_name") == "a,b"


@pytest.mark.parametrize("kind, index, name", [
    ("dns", 0, "a.example.com"), ("dns", 1, "b.example.com"), ("dns", 2, None),
    ("email", 0, "jane@example.com"),
    ("uri", 0, "spiffe://example/jane"),
    ("ip", 0, "192.0.2.7"), ("ip", 1, None),
])
def test_alternative_name_is_chosen_by_kind_and_number(tmp_path, kind, index, name):
    import ipaddress
    certificate = decoded(tmp_path, [(NameOID.COMMON_NAME, "client")], alternatives=[
        x509.DNSName("a.example.com"), x509.RFC822Name("jane@example.com"), x509.DNSName("b.example.com"),
        x509.UniformResourceIdentifier("spiffe://example/jane"),
        x509.IPAddress(ipaddress.ip_address("192.0.2.7"))])

    assert user_name(certificate, "subject_alternative_name", kind, index) == name


@pytest.mark.parametrize("login_from", ["distinguished_name", "common_name", "subject_alternative_name"])
def test_certificate_without_a_name_logs_nobody_in(tmp_path, login_from):
    assert user_name(decoded(tmp_path), login_from) is None


def test_validity_is_shown(tmp_path):
    assert validity(
        decoded(tmp_path, [(NameOID.COMMON_NAME, "x")])
    ) == "Jan  2 00:00:00 2026 GMT - Jan  3 00:00:00 2026 GMT"


def test_openssl_writes_the_same_distinguished_name(tmp_path):
    """A witness from outside, where it is installed."""
    import shutil
    import subprocess
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    issued = trustme.CA().issue_cert(
        "a.example.com", common_name="Müller, Jörg", organization_name='"Q" + <R>',
        organization_unit_name="#1 ",
    )
    path = tmp_path / "certificate.pem"
    issued.cert_chain_pems[0].write_to_path(path)
    command = ["openssl", "x509", "-in", path, "-noout", "-subject", "-nameopt", "RFC2253,-esc_msb,utf8"]
    said = subprocess.run(command, capture_output=True, check=True)

    assert "subject=" + distinguished_name(
        ssl._ssl._test_decode_cert(str(path))["subject"]
    ) == said.stdout.decode().strip()
