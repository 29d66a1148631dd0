"""Session cookie: its name, and how a request brings it and an answer sets and deletes it.

Between login and session, which knows numbers only. Browsers keep cookies by host, whatever the port: the
name has the port that the browser asked for, so that two brokers on one machine do not overwrite each
other's. Over TLS the name begins with ``__Host-``: a browser takes such a cookie only from this very host
over TLS, so that neither another host of the domain nor an attacker on the line can set it.
"""
from urllib.parse import urlsplit

from flask import request

from gomq_py.http.foreign_pages import is_over_tls
from gomq_py.http.session import ENDS_AFTER_S

NAME = "gomq_session"
TLS_PREFIX = "__Host-"


def given():
    """The session number of this request's cookie, or None."""
    if not request.cookies:
        return None
    secure = request.cookies.get(TLS_PREFIX + _plain_name())
    # Behind a proxy that ends TLS, a request that only reads does not show that its page came over TLS.
    return secure if secure is not None or is_over_tls() else request.cookies.get(_plain_name())


def all_given():
    """The numbers of all session cookies of this request: a browser may hold one from a page over TLS and one
    from a page without.
    """
    return [request.cookies[each] for each in _names() if each in request.cookies]


def name():
    """The name of the cookie that this request would be given."""
    return TLS_PREFIX + _plain_name() if is_over_tls() else _plain_name()


def give(response, number):
    """Set the cookie with a session's number."""
    response.set_cookie(
        name(), number, max_age=ENDS_AFTER_S, path="/", secure=is_over_tls(), httponly=True,
        samesite="Strict",
    )


def take_back(response):
    """Delete the cookie, with and without the TLS prefix."""
    for each in _names():
        if each in request.cookies:
            secure = each.startswith(TLS_PREFIX)
            response.delete_cookie(each, path="/", secure=secure, httponly=True, samesite="Strict")


def _names():
    return TLS_PREFIX + _plain_name(), _plain_name()


def _plain_name():
    """The cookie's name without the prefix, with the port in ``Host``: browsers keep cookies by that host,
    and a proxy may change it. Without a port it is the scheme's own.
    """
    try:
        port = urlsplit(f"//{request.headers.get('Host', '')}").port
    except ValueError:  # an invalid port
        port = None
    return NAME if port is None else f"{NAME}_{port}"
