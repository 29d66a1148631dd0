"""Logging in by a token of an issuer of the tests' own: the code flow with PKCE, and what the page may then
speak to.
"""
import pytest
import requests
from playwright.sync_api import expect

from tests.support.broker_process import BrokerProcess
from tests.support.sign_on import SignOn
from tests.support.waiting import in_time

CLIENT_ID = "gomq-page"


@pytest.fixture(scope="module")
def issuer():
    with SignOn(CLIENT_ID, scope="gomq.tag:monitoring gomq.read:*/*") as one:
        yield one


@pytest.fixture(scope="module")
def signed(tmp_path_factory, issuer):
    """A broker that takes the issuer's tokens, and whose page knows its client id."""
    folder = tmp_path_factory.mktemp("signed")
    config = folder / "gomq.ini"
    config.write_text(
        "[main]\nauth_backends = local, oauth\n"
        f"[oauth]\nissuer = {issuer.url}\nresource_server_id = gomq\nclient_id = {CLIENT_ID}\n")
    with BrokerProcess(folder / "data", config=config, http_port=0) as process:
        yield process


@pytest.fixture
def base(signed):
    return f"http://127.0.0.1:{signed.ports['http']}"


def test_who_logs_in_at_the_issuer_is_shown_what_the_token_allows(ui, issuer):
    ui.page.goto(f"{ui.base}/#/queues?name=x")

    ui.page.get_by_role("button", name="Log in with").click()

    expect(ui.page.get_by_role("heading", level=1)).to_have_text("Queues")
    expect(ui.page).to_have_url(f"{ui.base}/#/queues?name=x")
    expect(ui.page.get_by_text("ann", exact=True).first).to_be_visible()
    expect(ui.page.get_by_role("navigation").get_by_role("link", name="Log", exact=True)).to_have_count(0)
    assert issuer.refusals == []


@pytest.mark.parametrize("answer", ["code=stolen", "error=x&error_description=Call+this+number"])
def test_an_answer_to_nobodys_question_logs_nobody_in_and_says_nothing(ui, answer):
    ui.page.goto(f"{ui.base}/?{answer}&state=guessed")

    expect(ui.page.get_by_role("alert")).to_contain_text("This login was not begun in this browser.")
    assert not ui.context.cookies()


def test_what_another_issuer_says_of_itself_is_not_believed(ui, issuer, monkeypatch):
    documents = issuer.documents()
    documents["/realm/.well-known/openid-configuration"]["issuer"] = "https://other.example"
    monkeypatch.setattr(issuer, "documents", lambda: documents)
    ui.page.goto(ui.base)

    ui.page.get_by_role("button", name="Log in with").click()

    expect(ui.page.get_by_role("alert")).to_contain_text("is of another issuer")
    assert ui.page.url.startswith(ui.base)


def test_whoever_is_logged_in_stays_so_at_an_address_with_a_state_alone(ui):
    ui.page.goto(ui.base)
    ui.page.get_by_role("button", name="Log in with").click()
    expect(ui.page.get_by_role("heading", level=1)).to_have_text("Overview")

    ui.page.goto(f"{ui.base}/?state=x")

    expect(ui.page.get_by_role("heading", level=1)).to_have_text("Overview")


def test_the_policy_names_the_issuer_and_nobody_else(base, issuer):
    told = requests.get(f"{base}/api/auth", timeout=in_time(60))
    origin = issuer.url.removesuffix("/realm")

    assert told.json() == {
        "enable_uaa": False, "oauth_enabled": True, "uaa_client_id": "", "uaa_location": "",
        "oauth_client_id": CLIENT_ID, "oauth_provider_url": issuer.url, "oauth_scopes": "openid profile",
        "oauth_redirect_url": "",
    }
    policy = requests.get(base, timeout=in_time(60)).headers["Content-Security-Policy"]
    assert f"connect-src 'self' {origin};" in policy
