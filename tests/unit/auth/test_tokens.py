"""Tokens as passwords: what is accepted, what it grants, and when the issuer is asked."""
import socket
import threading

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from gomq_py.auth.errors import LoginRefused
from gomq_py.auth.issuer_keys import LIVES, PAUSE_BETWEEN_FETCHES_S, IssuerKeys, fetch_json
from gomq_py.auth.permissions import CONFIGURE, READ, WRITE
from gomq_py.auth.tokens import Tokens, looks_like_token
from gomq_py.auth.users import User
from gomq_py.broker.envelope import check_user_id
from gomq_py.broker.routing.route import ExchangeState
from gomq_py.config.settings import Settings
from gomq_py.errors import PreconditionFailed
from tests.support.token_issuer import TokenIssuer
from tests.support.waiting import in_time

TTL_S = 100


class Clock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture(scope="module")
def issuer():
    with TokenIssuer() as issuer:
        yield issuer


@pytest.fixture
def fetched(issuer):
    """URLs that were fetched, in order; what they answer is the issuer's, until it is ``broken``."""

    class Fetched(list):
        kept_s = None
        broken = False

        def __call__(self, url):
            self.append(url)
            if self.broken:
                raise OSError("unreachable")
            return issuer.documents()["/" + url.split("/", 3)[3]], self.kept_s

    return Fetched()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def keys(issuer, fetched, clock):
    return IssuerKeys(issuer.url, TTL_S, fetched, clock)


@pytest.fixture
def tokens(issuer, keys):
    def make(**settings):
        settings = {"oauth_issuer": issuer.url, "oauth_resource_server_id": "gomq", **settings}
        return Tokens(Settings(**settings), ExchangeState, keys)

    return make


def test_user_of_a_token_is_not_the_local_user_of_its_name(issuer, keys):
    settings = Settings(oauth_issuer=issuer.url, oauth_resource_server_id="gomq")
    tokens = Tokens(settings, ExchangeState, keys, local_users={"ann"})
    ann, bob = tokens.login(issuer.token()), tokens.login(issuer.token(sub="bob"))
    local = User("ann", "", "", (), ExchangeState())

    check_user_id("ann", local)
    check_user_id("bob", bob)
    with pytest.raises(PreconditionFailed, match="was 'ann', who came with a token"):
        check_user_id("ann", ann)

    assert ann.identity != local.identity
    assert ann.identity == tokens.login(issuer.token()).identity != bob.identity


def test_a_token_of_the_issuer_lets_its_subject_in(tokens, issuer):
    user = tokens().login(
        issuer.token(scope="gomq.tag:monitoring gomq.read:%2F/orders.* other.tag:administrator")
    )

    assert (user.name, user.tags) == ("ann", ("monitoring",))
    assert user.permission("/").allows(READ, "orders.eu") and not user.permission("/").allows(READ, "orders")
    assert (
        not user.permission("/").allows(WRITE, "orders.eu") and not user.permission("/").allows(CONFIGURE, "")
    )
    assert user.permission("elsewhere") is None
    assert 590 < user.seconds_left <= 600


def test_octets_are_as_good_as_text(tokens, issuer):
    assert tokens().login(issuer.token().encode()).name == "ann"


def test_elliptic_keys_are_accepted(tokens, issuer):
    issuer.add_elliptic_key("ec-1")

    assert tokens().login(issuer.token("ec-1")).name == "ann"


@pytest.mark.parametrize("claims, reason", [
    ({"lifetime_s": -1}, "expired"),
    ({"exp": None}, "exp"),
    ({"iss": "http://somebody.else"}, "another issuer"),
    ({"iss": None}, "iss"),
    ({"aud": "billing"}, "not for the audience 'gomq'"),
    ({"aud": ["billing", "mail"]}, "not for the audience 'gomq'"),
    ({"aud": None}, "not for the audience 'gomq'"),
    ({"sub": None}, "no user name in sub, client_id"),
    ({"sub": ""}, "no user name"),
    ({"sub": 7}, "no user name"),
    ({"nbf": 4102444800}, "not yet valid"),
    ({"headers": {}}, "does not name its key"),
    ({"headers": {"kid": "unheard-of"}}, "does not have"),
])
def test_a_token_that_is_not_right_is_refused(tokens, issuer, claims, reason):
    with pytest.raises(LoginRefused, match=reason):
        tokens().login(issuer.token(**claims))


def test_a_token_signed_by_somebody_else_is_refused(tokens, issuer):
    forged = issuer.token(key=rsa.generate_private_key(public_exponent=65537, key_size=2048))

    with pytest.raises(LoginRefused, match="Signature verification failed"):
        tokens().login(forged)


def test_a_token_signed_with_the_public_key_as_a_secret_is_refused(tokens, issuer):
    """The classic confusion of algorithms: HS256 with what everybody may know."""
    secret = issuer.jwks()["keys"][0]["n"] + "padding to the length that the library asks for"

    with pytest.raises(LoginRefused, match="'HS256'; RS256 and ES256 are accepted"):
        tokens().login(jwt.encode(
            {"iss": issuer.url, "sub": "ann", "aud": "gomq", "exp": 4102444800}, secret, "HS256",
            {"kid": "rsa-1"},
        ))


def test_an_unsigned_token_is_refused(tokens, issuer):
    with pytest.raises(LoginRefused, match="'none'"):
        tokens().login(jwt.encode(
            {"iss": issuer.url, "sub": "ann", "aud": "gomq", "exp": 4102444800}, None, "none",
            {"kid": "rsa-1"},
        ))


def test_an_algorithm_that_is_not_the_keys_is_refused(tokens, issuer):
    issuer.add_elliptic_key("ec-2")

    with pytest.raises(LoginRefused, match="signed with RS256, its key is for ES256"):
        tokens().login(issuer.token("ec-2", key=issuer.private_keys["rsa-1"], headers={"kid": "ec-2"}))


@pytest.mark.parametrize("text", [
    "", "..", "a.b.c", "secret", "e30.e30.e30", "\udcff.\udcff.\udcff", b"\xff.\xff.\xff"
])
def test_what_is_no_token_is_refused(tokens, text):
    with pytest.raises(LoginRefused):
        tokens().login(text)


def test_no_part_of_the_token_is_in_the_reason(tokens, issuer):
    token = issuer.token(lifetime_s=-1)

    with pytest.raises(LoginRefused) as refused:
        tokens().login(token)

    assert not any(part in str(refused.value) for part in token.split("."))


def test_the_audience_may_be_another_or_nobodys(tokens, issuer):
    assert tokens(oauth_audience="mail").login(issuer.token(aud=["mail"])).name == "ann"
    assert tokens(oauth_verify_aud=False).login(issuer.token(aud=None)).name == "ann"


def test_the_name_is_the_first_preferred_claim_there_is(tokens, issuer):
    named = tokens(oauth_preferred_username_claims=("preferred_username", "client_id", "sub"))

    assert named.login(issuer.token(client_id="device-7")).name == "device-7"


def test_scopes_come_from_every_place_that_is_named(tokens, issuer):
    token = issuer.token(
        scope=["gomq.read:a/*"],
        resource_access={"gomq": {"roles": ["gomq.write:b/*"]}, "other": {"roles": ["gomq.write:c/*"]}},
        extra={"gomq": ["gomq.tag:management"]}, roles="gomq.configure:d/*",
    )

    user = tokens(oauth_additional_scopes_keys=("extra", "roles")).login(token)

    assert (
        user.permission("a").allows(READ, "q") and user.permission("b").allows(WRITE, "q")
        and user.permission("d").allows(CONFIGURE, "q")
    )
    assert user.permission("c") is None
    assert user.tags == ("management",)


def test_another_prefix_may_be_set(tokens, issuer):
    user = tokens(oauth_scope_prefix="broker:").login(issuer.token(scope="broker:read:*/* gomq.write:*/*"))

    assert user.permission("any").allows(READ, "q") and not user.permission("any").allows(WRITE, "q")


@pytest.mark.parametrize("scope", [
    "gomq.read", "gomq.read:", "gomq.read:a", "gomq.read:a/b/c/d", "gomq.tag:root", "gomq.grant:*/*", "gomq.",
    "",
])
def test_a_scope_that_says_nothing_grants_nothing(tokens, issuer, scope):
    user = tokens().login(issuer.token(scope=scope))

    assert user.permission("a") is None and user.tags == ()


@pytest.mark.parametrize("scopes", [{"a": 1}, 7, [1, None], None, [["gomq.tag:administrator"]]])
def test_scopes_of_a_strange_type_grant_nothing(tokens, issuer, scopes):
    assert tokens().login(issuer.token(scope=scopes)).tags == ()


def test_a_right_on_the_default_exchange_is_asked_for_by_its_name(tokens, issuer):
    permission = tokens().login(issuer.token(scope="gomq.write:*/amq.default")).permission("/")

    assert permission.allows(WRITE, "") and not permission.allows(WRITE, "amq.direct")


def test_a_scope_may_name_the_routing_keys_of_a_topic_exchange(tokens, issuer):
    user = tokens().login(issuer.token(scope="gomq.write:*/amq.topic/eu.* gomq.read:*/amq.*"))

    limit = user.topic_permission("/", "amq.topic")
    assert (
        limit.allows(WRITE, "eu.orders") and not limit.allows(WRITE, "us.orders")
        and limit.allows(READ, "us.orders")
    )
    assert user.permission("/").allows(WRITE, "amq.topic")
    assert user.topic_permission("/", "amq.other") is None


def test_a_newer_token_replaces_the_rights(tokens, issuer):
    verifier = tokens()
    user = verifier.login(issuer.token(scope="gomq.read:*/*"))
    assert user.permission("/").allows(READ, "q")
    revision = user.state.revision

    user.renew(verifier.verify(issuer.token(scope="gomq.write:*/*", lifetime_s=1200)))

    assert not user.permission("/").allows(READ, "q") and user.permission("/").allows(WRITE, "q")
    assert user.state.revision > revision and user.seconds_left > 600


def test_somebody_elses_token_does_not_renew(tokens, issuer):
    verifier = tokens()
    user = verifier.login(issuer.token())

    with pytest.raises(LoginRefused, match="of user 'bob', not of 'ann'"):
        user.renew(verifier.verify(issuer.token(sub="bob")))


def test_a_token_may_have_many_scopes(tokens, issuer):
    """Put together as one regular expression they were longer than one may be,
    which was answered as a fault of the broker.
    """
    user = tokens().login(issuer.token(
        scope=[f"gomq.read:*/orders.{number}.of.a.region.*/eu.{number}.*" for number in range(200)]
    ))

    assert (
        user.permission("/").allows(READ, "orders.199.of.a.region.x")
        and not user.permission("/").allows(READ, "orders.200.of.a.region.x")
    )
    assert user.topic_permission("/", "orders.7.of.a.region.x").allows(READ, "eu.7.k")


def test_only_three_parts_look_like_a_token():
    assert looks_like_token("a.b.c") and looks_like_token(b"a.b.c")
    assert not looks_like_token("guest") and not looks_like_token(b"a.b.c.d")


class TestIssuerKeys:
    def test_are_fetched_once(self, keys, fetched, issuer):
        keys.key("rsa-1")
        keys.key("rsa-1")

        discovery = "/.well-known/openid-configuration"
        assert fetched == [issuer.url + discovery, issuer.documents()["/realm" + discovery]["jwks_uri"]]

    def test_a_new_key_id_has_them_fetched_again_but_not_at_once(self, keys, fetched, clock):
        keys.key("rsa-1")

        for _ in range(3):
            with pytest.raises(LoginRefused):
                keys.key("made-up")
        assert len(fetched) == 2

        clock.now_s += PAUSE_BETWEEN_FETCHES_S
        with pytest.raises(LoginRefused):
            keys.key("made-up")
        assert len(fetched) == 4

    def test_old_ones_are_used_while_new_ones_are_fetched(self, keys, fetched, clock, hub):
        keys.key("rsa-1")
        clock.now_s += TTL_S + 1

        assert keys.key("rsa-1")["kty"] == "RSA"

        hub(lambda: len(fetched) == 4)

    def test_the_issuer_says_how_long_they_are_good(self, keys, fetched, clock, hub):
        fetched.kept_s = 10
        keys.key("rsa-1")
        clock.now_s += 11

        keys.key("rsa-1")

        hub(lambda: len(fetched) == 4)

    def test_an_issuer_that_is_away_for_a_while_does_no_harm(self, keys, fetched, clock, hub):
        keys.key("rsa-1")
        fetched.broken = True
        clock.now_s += TTL_S + 1

        assert keys.key("rsa-1")
        hub(lambda: len(fetched) == 3)
        assert keys.key("rsa-1")

    def test_keys_that_the_issuer_lets_nobody_keep_outlast_a_failed_fetch(self, keys, fetched, clock, hub):
        fetched.kept_s = 0
        keys.key("rsa-1")
        fetched.broken = True
        clock.now_s += PAUSE_BETWEEN_FETCHES_S + 1

        assert keys.key("rsa-1")
        hub(lambda: len(fetched) == 3)
        assert keys.key("rsa-1")

        clock.now_s += PAUSE_BETWEEN_FETCHES_S * LIVES
        with pytest.raises(LoginRefused, match="cannot be had: unreachable"):
            keys.key("rsa-1")

    def test_keys_of_an_issuer_that_stays_away_are_given_up(self, keys, fetched, clock):
        keys.key("rsa-1")
        fetched.broken = True
        clock.now_s += TTL_S * 25

        with pytest.raises(LoginRefused, match="cannot be had: unreachable"):
            keys.key("rsa-1")

    def test_an_issuer_that_calls_itself_something_else_is_not_believed(self, issuer, clock):
        keys = IssuerKeys(
            issuer.url, TTL_S, lambda url: ({"issuer": "http://evil", "jwks_uri": issuer.url}, None), clock
        )

        with pytest.raises(LoginRefused, match="of another issuer"):
            keys.key("rsa-1")

    @pytest.mark.parametrize("document", [{}, {"keys": 7}, {"keys": [7, {}, {"kid": 1}]}])
    def test_a_strange_key_set_lets_nobody_in(self, issuer, clock, document):
        def fetch(url):
            return (
                document if url.endswith("keys")
                else issuer.documents()["/realm/.well-known/openid-configuration"]
            ), None

        with pytest.raises(LoginRefused):
            IssuerKeys(issuer.url, TTL_S, fetch, clock).key("rsa-1")


@pytest.mark.parametrize("answer, says", [
    (b"SSH-2.0-OpenSSH\r\n\r\n", "does not speak HTTP"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "does not speak HTTP"),
    (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 200_000, "too deep to be read"), (None, "is no address"),
])
def test_an_issuer_that_answers_nonsense_is_one_that_is_away(answer, says):
    """Whatever is raised on the way is one of the two errors that the caller expects."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        def serve():
            client, _ = listening.accept()
            client.recv(4096)
            client.sendall(answer)
            client.close()

        thread = threading.Thread(target=serve, daemon=True)
        if answer is not None:
            thread.start()
        path = "a b\x7f" if answer is None else "x"

        with pytest.raises((OSError, ValueError), match=says):
            fetch_json(f"http://127.0.0.1:{listening.getsockname()[1]}/{path}")
        if answer is not None:
            thread.join(in_time(60))
