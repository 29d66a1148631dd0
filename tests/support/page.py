"""The management page in a real browser: Debian's Chromium, headless, driven by Playwright.

    def test_something(ui):                         (tests/ui/conftest.py has the fixtures)
        ui.open("#/queues")                         logged in as guest, the page shown
        ui.page.get_by_role("link", name="jobs").click()

One browser for each worker, a new context (cookies, storage) for each test. A test fails on whatever the
browser complains about: console errors, errors that no script caught, reports of the Content-Security-Policy;
``ui.expect_complaint(pattern)`` says which one belongs to the test.
"""
import asyncio
import contextlib
import re

import pytest
import requests
from playwright.sync_api import expect, sync_playwright

from tests.support import programs
from tests.support.waiting import in_time

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update",
    "--disable-background-networking", "--disable-sync",
)
TIMEOUT_MS = in_time(15) * 1000
# Told by the page itself: the console's text does not say which directive it was.
CSP_WATCH = """
addEventListener("securitypolicyviolation", event => console.error(
    `CSP: ${event.violatedDirective} forbids ${event.blockedURI} in ${event.sourceFile}`));
"""
# The page before must not count as shown while the browser has not come to the next one, nor when what it
# waited for comes meanwhile.
GO = """address => {
    if (location.hash === address) return;
    document.querySelector("#main .page")?.setAttribute("data-left", "");
    location.hash = address;
}"""
LOGGED_IN = """
if (!sessionStorage.getItem("tests.begun")) {
    sessionStorage.setItem("tests.begun", "1");
    localStorage.setItem("gomq.session", "1");
    localStorage.setItem("gomq.refresh", "1");
}
"""


class Driver:
    """Playwright's loop, which counts as running between two of its calls, and so would keep every other
    test of this process from asyncio; ``hidden`` says that it does not run.
    """

    def __init__(self):
        self._playwright = sync_playwright().start()
        self.browser = self._playwright.chromium.launch(
            executable_path=programs.find("chromium"), args=list(FLAGS), headless=True)
        self._loop = asyncio.events._get_running_loop()
        expect.set_options(timeout=TIMEOUT_MS)
        self.hide()

    def show(self):
        asyncio.events._set_running_loop(self._loop)

    @staticmethod
    def hide():
        asyncio.events._set_running_loop(None)

    def close(self):
        self.show()
        self.browser.close()
        self._playwright.stop()
        self.hide()


class UI:
    """The page of a broker in a context of its own. ``page`` is Playwright's."""

    def __init__(self, driver, base, **options):
        """``options`` are Playwright's for a context: ``viewport``, ``color_scheme``..."""
        self.base = base
        self.context = driver.browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        self.context.set_default_timeout(TIMEOUT_MS)
        self.context.add_init_script(CSP_WATCH)
        self._complaints = []
        self._expected = []
        self.requests = []
        self.page = self.new_page()

    def new_page(self):
        """Another page (tab) of the same browser."""
        page = self.context.new_page()
        page.on("console", lambda told: told.type == "error" and self._complain(
            f"{told.text} ({told.location.get('url', '')})"))
        page.on("pageerror", lambda error: self._complain(f"error: {error}"))
        page.on("request", lambda request: self.requests.append(request.url))
        return page

    def _complain(self, text):
        self._complaints.append(text)

    def expect_complaint(self, pattern):
        """The browser may complain with this, in this test."""
        self._expected.append(re.compile(pattern))

    def check(self):
        """AssertionError where the browser complained."""
        told = [one for one in self._complaints if not any(each.search(one) for each in self._expected)]
        assert not told, "the browser complains:\n" + "\n".join(told)

    def log_in(self, user="guest", password="guest"):
        """Log in as the page would, without showing it."""
        answer = self.context.request.post(
            f"{self.base}/api/session", data={"username": user, "password": password},
            headers={"Origin": self.base})
        assert answer.status == 201, answer.text()
        self.context.add_init_script(LOGGED_IN)

    def open(self, address="#/", user="guest", password="guest"):
        """Log in where that is still to do, show the page of this address and wait until it is there."""
        if not self.context.cookies():
            self.log_in(user, password)
        if self.page.url.startswith(self.base):
            self.page.evaluate(GO, address)
        else:
            self.page.goto(f"{self.base}/{address}")
        self.wait_shown()

    def declare(self, address, name):
        """Open the dialog that declares a queue or an exchange, with a name filled in, and return it."""
        self.open(address)
        self.page.get_by_role("button", name="Declare\u2026").click()
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_label("Name").fill(name)
        return dialog

    def wait_shown(self):
        """Until the page of the address has shown what it has."""
        expect(self.page.locator("#main .page[data-shown]:not([data-left])")).to_be_visible()

    def close(self):
        self.context.close()


class API:
    """The broker's API beside the page: what a test prepares, and looks at behind the page's back."""

    def __init__(self, base, user="guest", password="guest"):
        self.base = base
        self._auth = (user, password)

    def ask(self, method, path, json=None):
        """The JSON of the answer, or None; AssertionError where it is refused."""
        answer = requests.request(
            method, f"{self.base}/api/{path}", auth=self._auth, timeout=in_time(60),
            json={} if json is None and method in ("PUT", "POST") else json)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.text else None

    def get(self, path):
        return self.ask("GET", path)

    def put(self, path, json=None):
        return self.ask("PUT", path, json)

    def post(self, path, json=None):
        return self.ask("POST", path, json)

    def delete(self, path):
        return self.ask("DELETE", path)


@pytest.fixture(scope="session")
def driver():
    """The browser of this worker."""
    one = Driver()
    yield one
    one.close()


@pytest.fixture
def browser_context(driver):
    """Makes UIs: ``browser_context(base, **options)``; each is checked and closed at the end."""
    made = []
    driver.show()

    def make(base, **options):
        made.append(UI(driver, base, **options))
        return made[-1]

    try:
        yield make
        for one in made:
            one.check()
    finally:
        with contextlib.ExitStack() as closing:
            closing.callback(driver.hide)
            for one in made:
                closing.callback(one.close)
