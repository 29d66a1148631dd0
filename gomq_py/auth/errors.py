"""Errors: defines the errors of logins."""


class LoginRefused(Exception):
    """The login is refused. The text goes into the log, never to the peer, and holds no secret."""


class TooManyAttempts(LoginRefused):
    """The password was not checked, because too many login attempts are waiting. ``retry_after_s``: seconds
    until another attempt makes sense.
    """

    def __init__(self, retry_after_s):
        super().__init__("too many failed logins, of which too many wait to be checked")
        self.retry_after_s = retry_after_s


class BackendError(Exception):
    """An authentication backend cannot work as configured; the text says what to set or install."""


class LoopbackOnly(LoginRefused):
    """The password was right, but the user may log in from this machine only."""
