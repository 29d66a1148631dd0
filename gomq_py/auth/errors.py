"""The errors of logins."""


class LoginRefused(Exception):
    """The login is refused. The text is for the log, never for the peer, and has no secret."""


class TooManyAttempts(LoginRefused):
    """The password was not checked, because too many attempts wait. ``retry_after_s``: seconds to wait."""

    def __init__(self, retry_after_s):
        super().__init__("too many failed logins, of which too many wait to be checked")
        self.retry_after_s = retry_after_s


class BackendError(Exception):
    """An authentication backend cannot work as configured. The text says what to set or install."""


class LoopbackOnly(LoginRefused):
    """The password was correct, but the user may log in only from this machine."""
