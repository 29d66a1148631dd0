"""What login says no with."""


class LoginRefused(Exception):
    """Not let in. The text is for the log, never for the peer, and holds no secret."""


class BackendError(Exception):
    """The backends cannot be used as they are set; the text says what to set or install."""


class LoopbackOnly(LoginRefused):
    """The password was right, the address was not."""
