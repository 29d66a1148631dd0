"""What is told of an end that fails: what to do about it, and nothing that only this end is to know."""
import json
import ssl
from base64 import urlsafe_b64encode

import pytest

from gomq_py.client.errors import ConnectionClosed
from gomq_py.links import troubles


def refused(code, message):
    error = ssl.SSLCertVerificationError(message)
    error.verify_code, error.verify_message = code, message
    return error


@pytest.mark.parametrize("error, text", [
    (refused(10, "certificate has expired"), "TLS: the certificate of that end is refused: certificate has "
     "expired: it is to be renewed there"),
    (refused(18, "self-signed"), "TLS: the certificate of that end is refused: self-signed: cacertfile names "
     "the authority that has signed it"),
    (refused(999, "odd"), "TLS: the certificate of that end is refused: odd"),
    (TimeoutError("_ssl.c:1: The handshake operation timed out"),
     "TLS: that end does not answer the handshake: its port may not be for TLS"),
    (TimeoutError("nothing"), "nothing"), (OSError(5, "x"), "[Errno 5] x"),
])
def test_errors_of_tls_say_what_to_do(error, text):
    assert troubles.explained(error) == text


@pytest.mark.parametrize("uri, said", [
    ("amqp://ann:hush-hush@h", "no hush-hush"), ("amqp://ann:p%40ss%2F@h", "no p@ss/ and no p%40ss%2F"),
    ("amqps://h?certfile=c&password=key-hush", "no key-hush"),
    ("https://h/in?key=hush&a%20sign", "no hush, no a sign, a%20sign, a+sign"),
    ("https://h/in?key=a%2Fb%2Fc", "bad key a/b/c, a%2Fb%2Fc"),
    ("https://h/services/T0hush/B0-hush", "no /services/T0hush/B0-hush, no T0hush"),
    ("https://h/hush", "no /hush"), ("https://h/a/Hush%2Fp@ss/in", "no Hush/p@ss"),
    ("amqp://hush.hush@h", "no user hush.hush"), ("amqp://hush-hush:@h", "no user hush-hush"),
    (f"amqp://ann:{'t' * 3000}.x.y@h", f"no {'t' * 3000}.x.y"),
])
def test_what_a_peer_repeats_is_not_told_on(uri, said):
    told = troubles.told(ConnectionClosed(530, said), uri)

    assert "***" in told and "530" in told
    for secret in ("hush", "p@ss/", "p%40ss", "a sign", "a%20sign", "a/b/c", "a%2Fb", "ttt"):
        assert secret not in told


@pytest.mark.parametrize("uri, said", [
    ("amqp://guest:guest@h", "refused for user 'guest'"), ("amqp://a:b@h", "abba"), ("amqp://", "x"),
    ("no uri", "x"), ("http://h/in?a", "a path"),
    ("http://h/api/webhooks/in", "the api of webhooks is in error"), ("amqp://guest@h", "no guest"),
])
def test_what_is_no_secret_is_told(uri, said):
    assert troubles.told(OSError(said), uri) == said


def token(**claims):
    parts = ({"alg": "RS256"}, claims)
    first, second = (urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return f"{first}.{second}.c2lnbmF0dXJl"


def test_a_login_that_is_refused_says_when_its_token_expired():
    error = ConnectionClosed(403, "ACCESS_REFUSED")

    told = troubles.told(error, f"amqp://:{token(exp=1000000000)}@h")

    assert told == troubles.told(error, f"amqp://{token(exp=1000000000)}@h") == (
        "403 ACCESS_REFUSED: the token in the URI has expired at 2001-09-09 01:46:40 UTC, set the link anew "
        "with another one")
    assert troubles.told(ConnectionClosed(404, "x"), f"amqp://:{token(exp=1)}@h") == "404 x"


@pytest.mark.parametrize("password", [
    token(exp=99999999999), token(), token(exp="soon"), token(exp=None), "a.b.c", "a.b", "..", "ü.ü.ü",
    token(exp=-1e300), "x." + "W1s" * 4000 + ".y",
])
def test_other_passwords_have_no_time(password):
    assert troubles.told(ConnectionClosed(403, "x"), f"amqp://:{password}@h") == "403 x"
