"""Sessions: a page logs in once; its cookie does what the login does, and nothing without its token."""
import re
from urllib.parse import urlsplit

import pytest
import requests

from gomq_py import Broker
from tests.management.conftest import API
from tests.management.description import check, described
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import in_time

CHANGING = sorted(
    (path, method.upper()) for path, methods in described()["paths"].items() for method in methods
    if method.upper() not in ("GET", "HEAD", "OPTIONS") and not (path == "/api/session" and method == "post"))


class Page:
    """A page in a browser: keeps the cookie, and sends the token if it is told to."""

    def __init__(self, base):
        self.base = base
        self.browser = requests.Session()
        self.token = None

    def log_in(self, username="guest", password="guest"):
        answer = self.ask("POST", "session", json={"username": username, "password": password})
        if answer.status_code == 201:
            self.token = answer.json()["csrf_token"]
        return answer

    def ask(self, method, path, with_token=True, headers=(), **options):
        headers = dict(headers)
        if with_token and self.token is not None:
            headers["X-CSRF-Token"] = self.token
        answer = self.browser.request(
            method, f"{self.base}/api/{path}", headers=headers, timeout=in_time(60), **options
        )
        check(answer)
        return answer


@pytest.fixture
def page(api):
    one = Page(api.base)
    yield one
    one.browser.close()


@pytest.fixture
def ann(api):
    """A user of management with all rights in /."""
    api.put("users/session-ann", {"password": "ann's", "tags": "management"})
    api.put("permissions/%2F/session-ann", {"configure": ".*", "write": ".*", "read": ".*"})
    yield "session-ann", "ann's"
    api.delete("users/session-ann")


def test_a_page_logs_in_reads_changes_and_logs_out(page):
    begun = page.log_in()
    whoami = page.ask("GET", "whoami")
    made = page.ask("PUT", "queues/%2F/by-session", json={})
    gone = page.ask("DELETE", "queues/%2F/by-session")
    again = page.ask("GET", "session")
    ended = page.ask("DELETE", "session")

    assert [one.status_code for one in (begun, whoami, made, gone, again, ended)] == [
        201, 200, 201, 204, 200, 204
    ]
    assert (begun.json()["name"], whoami.json()["name"], again.json()["csrf_token"]) == (
        "guest", "guest", page.token
    )
    assert not page.browser.cookies
    assert page.ask("GET", "whoami").status_code == 401


def test_a_page_that_logs_in_again_has_one_session(page):
    page.log_in()
    number, = page.browser.cookies.values()
    page.log_in()
    (name, later), = page.browser.cookies.items()

    assert page.ask("GET", "whoami", headers={"Cookie": f"{name}={later}"}).status_code == 200
    page.browser.cookies.clear()
    assert page.ask("GET", "whoami", headers={"Cookie": f"{name}={number}"}).status_code == 401


def test_a_page_is_logged_in_to_two_brokers_of_one_host(page, tmp_path):
    """Browsers keep cookies by host, whatever the port."""
    with Broker(tmp_path / "data", http_port=0) as broker:
        there = Page(broker.http_url.rstrip("/"))
        there.browser = page.browser
        page.log_in()
        there.log_in()

        names = [one.ask("GET", "session").json()["csrf_token"] for one in (page, there)]
        there.ask("DELETE", "session")

        assert names == [page.token, there.token]
        assert [one.ask("GET", "whoami").status_code for one in (page, there)] == [200, 401]


def test_the_cookie_is_for_the_browser_alone_and_answers_about_it_are_not_kept(page):
    begun = page.log_in()
    cookie = begun.headers["Set-Cookie"]
    ended = page.ask("DELETE", "session")

    name = f"gomq_session_{urlsplit(page.base).port}"
    assert re.fullmatch(
        name + r"=[\w-]{43}; Expires=[^;]+; Max-Age=28800; HttpOnly; Path=/; SameSite=Strict", cookie
    )
    assert re.match(name + r"=; Expires=Thu, 01 Jan 1970", ended.headers["Set-Cookie"])
    assert begun.headers["Cache-Control"] == ended.headers["Cache-Control"] == "no-store"
    assert cookie.partition("=")[2][:43] not in begun.text


def test_a_page_that_came_over_tls_has_its_cookie_sent_over_nothing_else(api, page):
    """Here a proxy has ended TLS, which the page's own address tells."""
    page.base = api.base
    over_tls = {"Origin": api.base.replace("http://", "https://")}
    answer = page.ask("POST", "session", json={"username": "guest", "password": "guest"}, headers=over_tls)
    cookie = answer.headers["Set-Cookie"]
    with_cookie = {"Cookie": cookie.partition(";")[0], "X-CSRF-Token": answer.json()["csrf_token"]}

    read = page.ask("GET", "whoami", headers=with_cookie)
    ended = page.ask("DELETE", "session", headers={**with_cookie, **over_tls})

    name = f"__Host-gomq_session_{urlsplit(page.base).port}"
    assert re.fullmatch(
        name + r"=[\w-]{43}; Expires=[^;]+; Max-Age=28800; Secure; HttpOnly; Path=/; SameSite=Strict", cookie
    )
    assert (read.status_code, ended.status_code) == (200, 204)
    assert re.match(
        name + r"=; Expires=Thu, 01 Jan 1970[^;]*; Max-Age=0; Secure;", ended.headers["Set-Cookie"]
    )


def test_logging_out_ends_the_sessions_of_both_kinds_of_pages(api, page):
    """A browser may have logged in without TLS first, and then over a proxy that ends TLS."""
    page.base = api.base
    cookies = {}
    for headers in ({}, {"Origin": api.base.replace("http://", "https://")}):
        answer = page.ask("POST", "session", json={"username": "guest", "password": "guest"}, headers=headers)
        cookies[answer.headers["Set-Cookie"].partition(";")[0]] = answer.json()["csrf_token"]
    both = "; ".join(cookies)
    plain, secure = cookies

    ended = page.ask("DELETE", "session", headers={"Cookie": both, "X-CSRF-Token": cookies[secure]})

    assert ended.status_code == 204
    assert [page.ask("GET", "whoami", headers={"Cookie": each}).status_code for each in (plain, secure)] == [
        401, 401
    ]


def test_a_page_over_tls_changes_nothing_with_a_cookie_that_was_not_given_over_tls(api, page):
    """It may be one that somebody on the line, or another host of the domain, has put there."""
    page.base = api.base
    answer = page.ask("POST", "session", json={"username": "guest", "password": "guest"})
    with_cookie = {
        "Cookie": answer.headers["Set-Cookie"].partition(";")[0], "X-CSRF-Token": answer.json()["csrf_token"]
    }

    over_tls = page.ask(
        "DELETE", "session", headers={**with_cookie, "Origin": api.base.replace("http://", "https://")})

    assert over_tls.status_code == 401
    assert page.ask("DELETE", "session", headers=with_cookie).status_code == 204


@pytest.mark.parametrize(("path", "method"), CHANGING)
def test_no_route_that_changes_something_takes_a_session_without_its_token(signed_in, path, method):
    url = re.sub(
        r"{\w+}", "nosuchthing", path.replace("{vhost}", "%2F").replace("{number}", "1")
    ).removeprefix("/api/")

    without = signed_in.ask(method, url, with_token=False, json={})
    wrong = signed_in.ask(method, url, with_token=False, json={}, headers={"X-CSRF-Token": "A" * 43})

    assert [(answer.status_code, answer.json()["error"]) for answer in (without, wrong)] == [
        (403, "forbidden")
    ] * 2


@pytest.fixture(scope="module")
def signed_in(managed):
    one = Page(f"http://127.0.0.1:{managed.ports['http']}")
    assert one.log_in().status_code == 201
    yield one
    one.browser.close()


def test_the_token_of_one_session_is_none_of_another(api, page):
    other = Page(api.base)
    page.log_in()
    other.log_in()

    refused = page.ask(
        "PUT", "queues/%2F/crossed", with_token=False, headers={"X-CSRF-Token": other.token}, json={}
    )

    assert refused.status_code == 403


def test_a_session_may_what_its_user_may(page, ann):
    page.log_in(*ann)

    assert page.ask("GET", "users").status_code == 401
    assert page.ask("GET", "users").json()["error"] == "not_authorised"
    assert page.ask("GET", "queues/%2F").status_code == 200


def change_password(api, name):
    api.put(f"users/{name}", {"password": "another", "tags": "management"})


def change_tags(api, name):
    api.put(f"users/{name}", {"password": "ann's", "tags": "monitoring"})


def delete(api, name):
    api.delete(f"users/{name}")


def make_anew(api, name):
    api.delete(f"users/{name}")
    api.put(f"users/{name}", {"password": "ann's", "tags": "management"})


@pytest.mark.parametrize("change", [change_password, change_tags, delete, make_anew])
def test_a_session_ends_when_password_or_tags_of_its_user_change(api, page, ann, change):
    page.log_in(*ann)
    before = page.ask("GET", "whoami").status_code

    change(api, ann[0])

    after = page.ask("GET", "whoami")
    assert (before, after.status_code, after.json()["reason"]) == (200, 401, "The session has ended")
    assert "WWW-Authenticate" not in after.headers


def change_rights(api, name):
    api.put(f"permissions/%2F/{name}", {"configure": "", "write": "", "read": ""})


def take_rights(api, name):
    api.delete(f"permissions/%2F/{name}")


def put_the_same(api, name):
    user = api.get(f"users/{name}").json()
    api.put(f"users/{name}", user).raise_for_status()


def put_the_same_password(api, name):
    api.put(f"users/{name}", {"password": "ann's", "tags": "management"}).raise_for_status()


def import_the_same_password(api, name):
    users = [{"name": name, "password": "ann's", "tags": "management"}]
    api.post("definitions", {"users": users}).raise_for_status()


def import_definitions(api, name):
    api.post("definitions", api.get("definitions").json()).raise_for_status()


def make_and_delete_a_vhost(api, name):
    api.put("vhosts/session-vhost").raise_for_status()
    api.put(
        f"permissions/session-vhost/{name}", {"configure": ".*", "write": ".*", "read": ".*"}
    ).raise_for_status()
    api.delete("vhosts/session-vhost").raise_for_status()


@pytest.mark.parametrize(
    "change",
    [
        change_rights, take_rights, put_the_same, put_the_same_password, import_the_same_password,
        import_definitions, make_and_delete_a_vhost,
    ],
)
def test_a_session_outlives_what_does_not_change_the_login_of_its_user(api, page, ann, change):
    page.log_in(*ann)

    change(api, ann[0])

    assert page.ask("GET", "whoami").status_code == 200


@pytest.mark.parametrize(("change", "status"), [(change_rights, 200), (take_rights, 401)])
def test_a_session_may_from_then_on_what_its_user_may(api, page, ann, change, status):
    page.log_in(*ann)
    before = page.ask("PUT", "queues/%2F/of-session", json={}).status_code

    change(api, ann[0])

    assert before == 201
    assert page.ask("GET", "queues/%2F").status_code == status
    assert page.ask("DELETE", "queues/%2F/of-session").status_code == 401
    api.delete("queues/%2F/of-session")


def test_who_makes_and_deletes_a_virtual_host_stays_logged_in(page):
    page.log_in()

    made = page.ask("PUT", "vhosts/session-vhost", json={})
    gone = page.ask("DELETE", "vhosts/session-vhost")

    assert (made.status_code, gone.status_code, page.ask("GET", "whoami").status_code) == (201, 204, 200)


def test_a_user_without_a_tag_has_no_session(api, page):
    api.put("users/session-nobody", {"password": "x", "tags": ""})

    answer = page.log_in("session-nobody", "x")

    assert (answer.status_code, answer.json()["reason"]) == (401, "Not management user")
    assert not page.browser.cookies
    api.delete("users/session-nobody")


def test_a_login_by_header_begins_a_session_too(api, page):
    answer = page.ask("POST", "session", auth=("guest", "guest"))

    assert answer.status_code == 201
    assert page.ask("GET", "whoami").json()["name"] == "guest"


@pytest.mark.parametrize(("options", "status"), [
    ({"json": {"username": "guest"}}, 400), ({"json": {"username": "guest", "password": 7}}, 400),
    ({"data": b"username=guest"}, 415),
    ({"data": b'{"username": "guest", "password": "guest"}'}, 415), ({}, 415),
    ({"data": b"[]", "headers": {"Content-Type": "application/json"}}, 400),
    ({"data": b" " * 17000, "headers": {"Content-Type": "application/json"}}, 413),
    ({"data": {"username": "guest", "password": "guest"}}, 415),
    ({"json": {"username": "guest", "password": "wrong"}}, 401),
    ({"json": {"username": "nobody at all", "password": "guest"}}, 401),
])
def test_who_logs_in_otherwise_has_no_session(page, options, status):
    answer = page.ask("POST", "session", **options)

    assert answer.status_code == status, answer.text
    assert not page.browser.cookies


def test_a_password_goes_before_a_cookie_and_needs_no_token(page, ann):
    page.log_in(*ann)

    by_password = page.ask("GET", "whoami", auth=("guest", "guest"))
    changed = page.ask("PUT", "queues/%2F/by-password", with_token=False, auth=("guest", "guest"), json={})
    wrong = page.ask("GET", "whoami", auth=("guest", "wrong"))

    assert (by_password.json()["name"], changed.status_code, wrong.status_code) == ("guest", 201, 401)
    page.ask("DELETE", "queues/%2F/by-password")


def test_a_cookie_that_is_none_of_ours_is_refused_and_counts_as_no_guess(api, page):
    page.browser.cookies.set(f"gomq_session_{urlsplit(api.base).port}", "A" * 43)

    answers = [page.ask("GET", "whoami").status_code for _ in range(60)]

    assert answers == [401] * 60
    assert api.get("whoami").status_code == 200


def test_there_is_no_session_to_show_or_end_without_a_cookie(api):
    assert [api.get("session").status_code, api.delete("session").status_code] == [404, 404]


def test_guesses_of_sessions_are_slowed_down_with_all_others_and_no_secret_is_logged(tmp_path):
    """Ten may fail at once; the eleventh waits until one is forgotten."""
    with BrokerProcess(tmp_path / "data", http_port=0, log_level="debug") as process:
        base = f"http://127.0.0.1:{process.ports['http']}"
        page = Page(base)
        number, = page.log_in().cookies.values()
        token = page.token
        page.ask("PUT", "queues/%2F/logged", json={})
        guesses = [page.log_in("guest", f"guess-{guess}") for guess in range(5)]
        guesses += [API(base).as_user("guest", f"guess-{guess}").get("whoami") for guess in range(5, 10)]
        attempts = {one["protocol"]: one for one in page.ask("GET", "auth/attempts").json()}["http"]
        log = process.log_text

    assert [guess.status_code for guess in guesses] == [401] * 10
    assert (attempts["auth_attempts_failed"], attempts["auth_attempts_succeeded"]) == (10, 1)
    assert "login from 127.0.0.1 refused" in log
    assert not [secret for secret in (number, token, "guess-") if secret in log]
