"""The cookie of a session: its name, and how it is found in a request, given to the browser and taken back.

Between login and session, which knows numbers only. Browsers keep cookies by host, whatever the port: so that
two brokers on one machine do not overwrite each other's, the port that the browser asked for is in the name.
Over TLS the name begins with ``__Host-``: a browser takes such a cookie from this very host alone, over TLS
alone, so that neither another host of the domain nor somebody on the line can put one there.
"""
from urllib.parse import urlsplit

from flask import request

from gomq_py.http.foreign_pages import is_over_tls
from gomq_py.http.session import ENDS_AFTER_S

NAME = "gomq_session"
TLS_PREFIX = "__Host-"


def given():
    """The number of the session that this request came with, or None."""
    if not request.cookies:
        return None
    secure = request.cookies.get(TLS_PREFIX + _plain_name())
    # Behind a proxy that ends TLS a request that only reads does not say that its page came over TLS.
    return secure if secure is not None or is_over_tls() else request.cookies.get(_plain_name())


def all_given():
    """The numbers of all sessions that this request came with: a browser may hold a cookie of a page over TLS
    and one of a page that was not.
    """
    return [request.cookies[each] for each in _names() if each in request.cookies]


def name():
    """What the cookie is called that this request would be given."""
    return TLS_PREFIX + _plain_name() if is_over_tls() else _plain_name()


def give(response, number):
    """Have the browser keep the number of a session."""
    response.set_cookie(
        name(), number, max_age=ENDS_AFTER_S, path="/", secure=is_over_tls(), httponly=True,
        samesite="Strict",
    )


def take_back(response):
    """Have the browser forget it, and one of the other kind too."""
    for each in _names():
        if each in request.cookies:
            secure = each.startswith(TLS_PREFIX)
            response.delete_cookie(each, path="/", secure=secure, httponly=True, samesite="Strict")


def _names():
    return TLS_PREFIX + _plain_name(), _plain_name()


def _plain_name():
    """Without the prefix.

    The port is the one in ``Host``, which the browser keeps cookies for, or the proxy that changes it;
    none: the scheme's own.
    """
    try:
        port = urlsplit(f"//{request.headers.get('Host', '')}").port
    except ValueError:  # no port
        port = None
    return NAME if port is None else f"{NAME}_{port}"
