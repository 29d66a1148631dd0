"""The page's files: what is served, how, and what never is."""
import gzip

import pytest
import requests

from gomq_py.http.page import FOLDER
from tests.support.waiting import in_time

FILES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file())


def ask(api, path, **headers):
    return requests.get(
        f"{api.base}{path}", timeout=in_time(60), headers={"Accept-Encoding": "identity", **headers})


def test_page_and_every_file_of_it_are_served_without_a_login_and_described_as_what_they_are(api):
    types = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

    home = ask(api, "/")
    answers = {path: ask(api, f"/ui/{path}") for path in FILES}

    assert home.content == (FOLDER / "index.html").read_bytes()
    for path, answer in answers.items():
        assert answer.status_code == 200 and answer.content == (FOLDER / path).read_bytes()
        assert answer.headers["Content-Type"].split(";")[0] == types[path.rpartition(".")[2]]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_policy_lets_nothing_run_but_the_files(api):
    policy = ask(api, "/").headers["Content-Security-Policy"].split("; ")

    assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "base-uri 'none'"} <= set(policy)
    assert {"require-trusted-types-for 'script'", "trusted-types 'none'"} <= set(policy)
    assert "frame-ancestors 'none'" in policy
    assert not any("unsafe" in directive or "*" in directive for directive in policy)


def test_what_a_browser_has_already_is_not_sent_again(api):
    first = ask(api, "/ui/js/main.js")

    second = ask(api, "/ui/js/main.js", **{"If-None-Match": first.headers["ETag"]})

    assert (second.status_code, second.content, second.headers["ETag"]) == (304, b"", first.headers["ETag"])
    assert first.headers["Cache-Control"] == "no-cache"


def test_files_are_compressed_for_whom_it_suits(api):
    plain = ask(api, "/ui/css/page.css")
    with requests.get(
        f"{api.base}/ui/css/page.css", headers={"Accept-Encoding": "gzip"}, timeout=in_time(60), stream=True
    ) as packed:
        octets = packed.raw.read(decode_content=False)

    assert packed.headers["Content-Encoding"] == "gzip" and packed.headers["Vary"] == "Accept-Encoding"
    assert gzip.decompress(octets) == plain.content and len(octets) < len(plain.content) / 2
    assert packed.headers["ETag"] != plain.headers["ETag"]


@pytest.mark.parametrize("path", [
    "/ui", "/ui/", "/ui/js", "/ui/nosuch.js", "/ui/../page.py", "/ui/%2e%2e/page.py", "/ui/..%2Fpage.py",
    "/ui/js/../../app.py", "/ui/etc/passwd", "/ui/js/main.js/", "/ui/.hidden.js", "/ui/js%2Fmain.js",
    "/ui/js/main.js%00", "/ui/page.py", "/index.html",
])
def test_nothing_else_is_there(api, path):
    session = requests.Session()
    prepared = requests.Request("GET", f"{api.base}/").prepare()
    prepared.url = f"{api.base}{path}"  # as it is: requests would take the dots away

    answer = session.send(prepared, timeout=in_time(60), allow_redirects=False)

    assert answer.status_code == 404
    session.close()
