"""What login says no with."""


class LoginRefused(Exception):
    """Not let in. The text is for the log, never for the peer, and holds no secret."""


class TooManyAttempts(LoginRefused):
    """Nobody looked at the password: too many wait to be checked already.

    ``retry_after_s`` is when to come again.
    """

    def __init__(self, retry_after_s):
        super().__init__("too many failed logins, of which too many wait to be checked")
        self.retry_after_s = retry_after_s


class BackendError(Exception):
    """The backends cannot be used as they are set; the text says what to set or install."""


class LoopbackOnly(LoginRefused):
    """The password was right, the address was not."""
