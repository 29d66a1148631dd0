"""Sign-on: which sources a policy gets, whatever the settings say."""
import pytest

from gomq_py.config.settings import Settings
from gomq_py.http.sign_on import origins, policy_with, settings


def given(issuer, client_id="page", backends=("local", "oauth")):
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
    assert origins(given(issuer)) == found


def test_policy_is_as_it_was_where_pages_cannot_log_in_there():
    policy = "default-src 'none'; connect-src 'self'; base-uri 'none'"

    for one in (given("https://a"), given("https://a", "")), given("https://a", backends=("local",)):
        if isinstance(one, tuple):
            one, other = one
            assert policy_with(policy, one) == policy.replace("'self'", "'self' https://a")
            assert settings(other) is None
            one = other
        assert policy_with(policy, one) == policy
