"""The management servers: gevent.pywsgi on the broker's own hub, over TCP, TLS or a unix socket.

A request is one greenlet; what it builds it builds in slices (``answers``). Bounded: connections, header size, idle time. Knows no route.
"""
from urllib.parse import unquote_to_bytes

from gevent.pool import Pool
from gevent.pywsgi import WSGIHandler, WSGIServer

from gomq_py.observability.log import logger

LOG = logger("http")
# Requests under way at once; a further one waits in the backlog. A dashboard uses half a dozen.
MAX_CONNECTIONS = 256
# A client that sends nothing for so long is let go: slow senders of headers are an old way to use a server up.
IDLE_S = 60


class _LogSink:
    """Where pywsgi writes lines: our log, at debug level, for it says nothing about faults of ours."""

    @staticmethod
    def write(line):
        LOG.debug("%s", line.rstrip())

    @staticmethod
    def flush():
        """Nothing is kept back."""


class ManagementHandler(WSGIHandler):
    """One client. Keeps encoded slashes in names apart from the slashes of the path."""

    def get_environ(self):
        environ = super().get_environ()
        environ["PATH_INFO"] = path_info(self.path)
        return environ

    def log_request(self):
        """Requests are not logged: they may carry names, and a dashboard makes thousands."""


def path_info(raw):
    """WSGI's PATH_INFO of a raw request path, in which ``%2F`` and ``%25`` stay as they are, so that a name may hold a slash.

    >>> path_info("/api/queues/%2F/a%20b?x=1")
    '/api/queues/%2F/a b'
    """
    path = raw.partition("?")[0]
    kept = path.replace("%2f", "%2F").replace("%25", "%2525").replace("%2F", "%252F")
    return unquote_to_bytes(kept).decode("latin-1")


class ManagementServer:
    """Serves one WSGI app on one listening socket."""

    def __init__(self, listening, app, tls=None):
        """``listening`` is bound and listens already; ``tls`` is an ssl.SSLContext, anything with its ``wrap_socket``, or None."""
        options = {"ssl_context": tls} if tls is not None else {}
        self._server = WSGIServer(
            listening, app, handler_class=ManagementHandler, log=_LogSink, error_log=_LogSink, spawn=Pool(MAX_CONNECTIONS), **options)

    def start(self):
        """Begin to accept."""
        self._server.start()

    def close(self):
        """Stop accepting; requests under way have a second to end. May switch."""
        self._server.stop(timeout=1)
