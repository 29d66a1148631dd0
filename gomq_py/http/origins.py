"""Tells from a request's headers whether its host is this machine, and whether a page is the broker's own."""
import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from gomq_py.auth.users import is_loopback


def login_address(address, host, base_url):
    """Return the address to which a login is attributed, normally ``address``. If the header Host (``host``)
    of a local connection names another machine, return a text that does not count as a local address.
    """
    # A foreign name may resolve to this machine (DNS rebinding): to the browser its page is then not
    # cross-site, and the connection comes from the loopback.
    if not is_loopback(address) or _names_this_machine(host, base_url):
        return address
    return f"{address} by a foreign name"


def _names_this_machine(host, base_url):
    """Return True if ``host`` is an IP address, localhost, this machine or the host of ``base_url``."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        ours = urlsplit(base_url).hostname
    except ValueError:
        return False
    machine = socket.gethostname().lower()
    if name in ("", "localhost", machine, machine.partition(".")[0], ours) or name.endswith(".localhost"):
        return True
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def is_of(origin, host):
    """Return True if the URL ``origin`` has this host and port. Schemes may differ: a proxy may end TLS."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:
        return False
