"""What the management door makes of a refused login."""
import io
import time
from types import SimpleNamespace

import pytest

from gomq_py.auth.errors import LoginRefused, LoopbackOnly, TooManyAttempts
from gomq_py.auth.users import User
from gomq_py.config.settings import Settings
from gomq_py.http.answers import no_content
from gomq_py.http.app import create_app
from gomq_py.http.login import (
    ADMINISTRATOR, access, issuer_origins, policy_with_issuer, sign_on_settings,
)

# Pages log in by name and password alone.
NO_SIGN_ON = SimpleNamespace(oauth_client_id="", oauth_mgmt_base_url="")


@pytest.mark.parametrize(
    ("error", "status", "headers", "failed"),
    [
        (LoginRefused("secret reason"), 401, {"WWW-Authenticate": 'Basic realm="gomq-py management"'}, 1),
        (LoopbackOnly("secret reason"), 401, {"WWW-Authenticate": 'Basic realm="gomq-py management"'}, 0),
        (TooManyAttempts(60), 429, {"Retry-After": "60"}, 1),
    ],
)
def test_refusals_say_nothing_but_what_to_do(error, status, headers, failed):
    def login(name, password, address):
        raise error

    app = create_app(SimpleNamespace(
        broker=SimpleNamespace(logins=SimpleNamespace(login=login)), settings=NO_SIGN_ON))

    answer = app.test_client().get("/api/whoami", auth=("bob", "guess"))

    assert answer.status_code == status and "secret" not in answer.text
    assert {name: answer.headers[name] for name in headers} == headers
    assert app.extensions["gomq.logins"].failed_count == failed


class Account(User):
    """A user that the test changes; with ``expires_at_s`` it is a token's."""

    expires_at_s = None

    def __init__(self):
        super().__init__("bob", "hash", "SHA256", ("administrator",), None)


class SlowBody(io.RawIOBase):
    """``{}``, and ``meanwhile()`` happens before it comes."""

    def __init__(self, meanwhile):
        super().__init__()
        self._meanwhile = meanwhile
        self._octets = io.BytesIO(b"{}")

    def readable(self):
        return True

    def readinto(self, buffer):
        self._meanwhile()
        return self._octets.readinto(buffer)


@pytest.fixture
def bob():
    return Account()


@pytest.fixture
def door(bob):
    """An app that has one more route, ``PUT /api/act``, which answers 204;
    whoever gives credentials is bob.
    """
    logins = SimpleNamespace(login=lambda *_: bob, login_with_token=lambda _: bob)
    users = SimpleNamespace(get=lambda _: bob, may_come_from=lambda *_: True)
    durability = SimpleNamespace(when_safe=lambda callback: callback(None))
    app = create_app(
        SimpleNamespace(
            broker=SimpleNamespace(logins=logins, users=users, durability=durability, vhosts={}),
            settings=NO_SIGN_ON,
        )
    )
    app.add_url_rule("/api/act", view_func=access(ADMINISTRATOR)(no_content), methods=["PUT"])
    return app.test_client()


def basic(door):
    return {"Authorization": "Basic Ym9iOng="}


def bearer(door):
    return {"Authorization": "Bearer a.b.c"}


def cookie(door):
    return {"X-CSRF-Token": door.post("/api/session", headers=basic(door), json={}).json["csrf_token"]}


def nothing(bob):
    pass


def another_password(bob):
    bob.change_login("another hash", "SHA256", bob.tags)


def fewer_tags(bob):
    bob.change_login(bob.password_hash, "SHA256", ("management",))


def another_tag(bob):
    bob.change_login(bob.password_hash, "SHA256", ("administrator", "monitoring"))


def expired(bob):
    bob.expires_at_s = time.time() - 1


@pytest.mark.parametrize("credentials", [basic, bearer, cookie])
@pytest.mark.parametrize(("change", "status"), [
    (nothing, 204), (another_password, 401), (fewer_tags, 401), (another_tag, 401), (expired, 401)
])
def test_no_login_of_any_kind_outlives_its_end_while_the_body_comes(door, bob, credentials, change, status):
    bob.expires_at_s = time.time() + 3600
    headers = credentials(door)

    answer = door.put(
        "/api/act", headers=headers,
        environ_overrides={"wsgi.input": SlowBody(lambda: change(bob)), "CONTENT_LENGTH": "2"},
    )

    assert answer.status_code == status


@pytest.mark.parametrize(("address", "name"), [
    ("http://mq.example", "gomq_session"), ("http://mq.example:15672", "gomq_session_15672"),
    ("http://[::1]:15672", "gomq_session_15672"),
    ("https://mq.example", "__Host-gomq_session"), ("https://mq.example:15671", "__Host-gomq_session_15671"),
])
def test_session_has_a_cookie_of_the_address_that_was_asked(door, address, name):
    begun = door.post("/api/session", base_url=address, headers=basic(door), json={})

    found = begun.headers["Set-Cookie"]
    assert found.partition("=")[0] == name
    assert ("; Secure;" in found, "; Path=/;" in found, "Domain" in found) == (
        address.startswith("https"), True, False
    )
    assert door.get("/api/session", base_url=address).json["csrf_token"] == begun.json["csrf_token"]


def test_over_tls_a_cookie_that_others_can_put_there_is_no_session(door):
    begun = door.post("/api/session", base_url="http://mq.example:15671", headers=basic(door), json={})
    number = begun.headers["Set-Cookie"].partition("=")[2].partition(";")[0]

    browser = door.application.test_client(use_cookies=False)
    answers = [
        browser.get(
            "/api/session", base_url="https://mq.example:15671", headers={"Cookie": f"{name}={number}"}
        )
        for name in ("gomq_session_15671", "__Host-gomq_session_15671")]

    assert [answer.status_code for answer in answers] == [401, 200]


# sign-on at the issuer of tokens

def signing_on(issuer, client_id="page", backends=("local", "oauth")):
    one = Settings()
    one.oauth_issuer, one.oauth_client_id, one.auth_backends = issuer, client_id, backends
    return one


@pytest.mark.parametrize("issuer, found", [
    ("https://login.example.com/realms/a", ("https://login.example.com",)),
    ("http://127.0.0.1:8080", ("http://127.0.0.1:8080",)),
    ("https://user:secret@login.example.com/x", ("https://login.example.com",)),
    ("", ()), ("javascript:alert(1)", ()), ("https://", ()), ("https://a b/", ()),
    ("https://a;script-src *", ()),
    ("https://a,b", ()), ("https://a:port/", ()), ("https://h\u00e4user.example", ()), ("https://a'/", ()),
])
def test_origin_is_one_that_a_policy_can_name(issuer, found):
    assert issuer_origins(signing_on(issuer)) == found


def test_policy_is_as_it_was_where_pages_cannot_log_in_there():
    policy = "default-src 'none'; connect-src 'self'; base-uri 'none'"

    for one in (
        (signing_on("https://a"), signing_on("https://a", "")), signing_on("https://a", backends=("local",))
    ):
        if isinstance(one, tuple):
            one, other = one
            assert policy_with_issuer(policy, one) == policy.replace("'self'", "'self' https://a")
            assert sign_on_settings(other) is None
            one = other
        assert policy_with_issuer(policy, one) == policy
