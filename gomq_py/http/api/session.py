"""/api/session: logs a web page in and out by a cookie, and shows its session. Specific to gomq-py."""
import time

from flask import Blueprint, current_app, g, request

from gomq_py.http import login
from gomq_py.http.answers import body, json_answer, no_content, node, receive_body, text_of
from gomq_py.http.errors import BadRequest, NoSuchObject, UnsupportedType
from gomq_py.http.entities import visible_vhosts
from gomq_py.http.login import MANAGEMENT, access
from gomq_py.http.session import delete_cookies, number_in_cookie, numbers_in_cookies, set_cookie

blueprint = Blueprint("session", __name__)
# A name and a password, or a token in its place.
MAX_CREDENTIALS_OCTETS = 16 * 1024


def _authenticate():
    """Return the User whose credentials are in the Authorization header or the body. May switch greenlets."""
    if current_app.extensions.get("gomq.operator") is not None:
        raise BadRequest("nobody logs in at this socket: it needs no session")
    if request.authorization is not None:
        # First the body: the password may be changed while it comes, and must not begin a session then.
        receive_body(MAX_CREDENTIALS_OCTETS)
        return login.by_password(request.authorization)
    if request.mimetype != "application/json":
        raise UnsupportedType(
            "send Content-Type: application/json with username and password, or an Authorization header"
        )
    receive_body(MAX_CREDENTIALS_OCTETS)
    wanted = body(required=("username", "password"))
    return login.by_password(login.basic(text_of(wanted, "username"), text_of(wanted, "password")))


@blueprint.post("/api/session")
@access(MANAGEMENT, MAX_CREDENTIALS_OCTETS, _authenticate)
def begin_session():
    """Log in: set a cookie, and return the token that changing requests must send as ``X-CSRF-Token``."""
    _end_all_given()  # the browser drops their cookies with this answer
    number, g.session = login.sessions().begin(g.user)
    response = json_answer(_shape(number), 201)
    set_cookie(response, number)
    return _unkept(response)


@blueprint.get("/api/session")
@access(MANAGEMENT)
def get_session():
    """Return the user and the CSRF token of the cookie's session, for a page that was reloaded."""
    _check_there_is_one()
    return _unkept(json_answer(_shape(number_in_cookie())))


@blueprint.delete("/api/session")
@access(MANAGEMENT)
def end_session():
    """Log out: end the session of the cookie."""
    _check_there_is_one()
    _end_all_given()
    response = no_content()
    delete_cookies(response)
    return _unkept(response)


def _end_all_given():
    for number in numbers_in_cookies():
        login.sessions().end_numbered(number)


def _check_there_is_one():
    if g.session is None:
        raise NoSuchObject("this request came with no session")


def _shape(number):
    sessions = login.sessions()
    return {
        "name": g.user.name, "tags": list(g.user.tags), "csrf_token": sessions.token(number),
        "expires_at": int((time.time() + sessions.seconds_left(g.session)) * 1000),
        "permissions": _permissions(), "vhosts": [one.name for one in visible_vhosts()],
    }


def _permissions():
    """Return the user's permissions in each vhost as JSON; the web page offers actions accordingly."""
    found = (g.user.permission(name) for name in list(node().broker.vhosts))
    return [
        {"vhost": one.vhost, "configure": one.configure, "write": one.write, "read": one.read}
        for one in found if one is not None
    ]


def _unkept(response):
    response.headers["Cache-Control"] = "no-store"
    return response
