"""What the management door makes of a refused login."""

from types import SimpleNamespace

import pytest

from gomq_py.auth.errors import LoginRefused, LoopbackOnly, TooManyAttempts
from gomq_py.http.app import create_app


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

    app = create_app(SimpleNamespace(broker=SimpleNamespace(logins=SimpleNamespace(login=login))))

    answer = app.test_client().get("/api/whoami", auth=("bob", "guess"))

    assert answer.status_code == status and "secret" not in answer.text
    assert {name: answer.headers[name] for name in headers} == headers
    assert app.extensions["gomq.logins"].failed_count == failed
