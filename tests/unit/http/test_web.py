"""The app: which view answers, what is called before and after it, and what becomes of errors."""
import gevent
import pytest
from werkzeug.exceptions import HTTPException
from werkzeug.test import Client

from gomq_py.http.web import App, Blueprint, Response, current_app, g, request
from tests.support.waiting import in_time


class Fault(Exception):
    pass


class SmallFault(Fault):
    pass


@pytest.fixture
def app():
    """/ answers with what was called; /thing/NAME in its methods; /fault raises what its query says."""
    app, blueprint = App(), Blueprint("tests")
    app.register_error_handler(Fault, lambda error: Response(f"{type(error).__name__}", 418))
    app.register_error_handler(HTTPException, lambda error: Response(error.name, error.code))
    app.before_request(lambda: _note("before"))
    app.before_request(lambda: _note("before, too"))
    app.after_request(lambda response: _noted(response, "after"))
    app.after_request(lambda response: _noted(response, "first after"))

    @blueprint.get("/")
    def index():
        _note("view")
        return Response(" ".join(g.noted))

    @blueprint.get("/thing/<name>")
    def read(name):
        return Response(f"{name} {g.get('missing')} {g.pop('missing', 1)} {current_app is not None}")

    @blueprint.delete("/thing/<name>")
    def delete(name):
        return Response(f"no {name}")

    @blueprint.post("/other", defaults={"name": "usual"})
    @blueprint.post("/other/<name>")
    def other(name):
        return Response(name)

    @blueprint.get("/fault")
    def fault():
        raise {"small": SmallFault, "fault": Fault, "other": KeyError}[request.args["kind"]]("x")

    app.register_blueprint(blueprint)
    return app


def _note(what):
    g.noted = [*g.get("noted", ()), what]


def _noted(response, what):
    response.headers["X-Noted"] = ", ".join((*response.headers.getlist("X-Noted"), what))
    return response


def test_what_is_called_before_and_after_views(app):
    answer = Client(app).get("/")

    assert answer.get_data(as_text=True) == "before before, too view"
    assert answer.headers["X-Noted"] == "first after, after"
    assert answer.mimetype == "text/html"


@pytest.mark.parametrize("method, path, status, text", [
    ("GET", "/thing/a%20b", 200, "a b None 1 True"),
    ("GET", "/thing/a/", 200, "a None 1 True"),
    ("HEAD", "/thing/a", 200, ""),
    ("DELETE", "/thing/a", 200, "no a"),
    ("POST", "/other", 200, "usual"),
    ("POST", "/other/one", 200, "one"),
    ("OPTIONS", "/thing/a", 200, ""),
    ("POST", "/thing/a", 405, "Method Not Allowed"),
    ("GET", "/nothing", 404, "Not Found"),
    ("GET", "/fault?kind=small", 418, "SmallFault"),
    ("GET", "/fault?kind=fault", 418, "Fault"),
])
def test_the_view_of_the_path_and_method_answers(app, method, path, status, text):
    answer = Client(app).open(path, method=method)

    assert (answer.status_code, answer.get_data(as_text=True)) == (status, text)
    assert answer.headers["X-Noted"] == "first after, after"


def test_options_say_what_a_path_answers(app):
    answer = Client(app).options("/thing/a")

    assert set(answer.allow) == {"GET", "HEAD", "DELETE", "OPTIONS"}


def test_two_slashes_in_a_row_lead_to_the_path_with_one(app):
    answer = Client(app).get("/thing//a")

    assert (answer.status_code, answer.headers["Location"]) == (308, "http://localhost/thing/a")


@pytest.mark.parametrize("fails", ["view", "after"])
def test_faults_that_nobody_expects_are_logged_and_answered_with_500(app, caplog, fails):
    if fails == "after":
        app.after_request(lambda response: 1 // 0)

    answer = Client(app).get("/fault?kind=other" if fails == "view" else "/")

    assert (answer.status_code, answer.get_data(as_text=True)) == (500, "Internal Server Error")
    assert ("KeyError" if fails == "view" else "ZeroDivisionError") in caplog.text


def test_a_greenlet_sees_its_own_request(app):
    blueprint = Blueprint("more")

    @blueprint.get("/slow/<name>")
    def slow(name):
        g.name = name
        gevent.sleep(0)
        return Response(f"{g.name} {request.path}")

    app.register_blueprint(blueprint)
    asked = [gevent.spawn(Client(app).get, f"/slow/{number}") for number in range(5)]
    gevent.joinall(asked, timeout=in_time(10), raise_error=True)

    assert [one.value.get_data(as_text=True) for one in asked] == [f"{n} /slow/{n}" for n in range(5)]
    with pytest.raises(RuntimeError):
        request.path


def test_two_views_of_one_name_are_refused(app):
    blueprint = Blueprint("tests")
    blueprint.add_url_rule("/again", "read", lambda: None)

    with pytest.raises(ValueError):
        app.register_blueprint(blueprint)


def test_an_app_without_requests_is_the_current_one_within_its_context(app):
    with app.app_context():
        assert current_app.extensions is app.extensions
        assert g.get("user") is None
