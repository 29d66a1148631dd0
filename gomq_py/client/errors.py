"""Errors of client connections, with the codes and texts that the broker sent."""
from typing import Self

# OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and _HAS_EXPIRED, which may pass: a clock is set, a certificate
# renewed.
_IN_TIME_CODES = {9, 10}


class ClientError(Exception):
    """Base of all errors of the broker or the network."""


class ClosedError(ClientError):
    """A channel or connection was closed by the broker, this client or the network.

    ``reply_code``: the AMQP reply code or MQTT reason code; 0 if there is none. ``class_id`` and
    ``method_id``: the AMQP method that failed, or 0.
    """

    def __init__(self, reply_code: int, reply_text: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(f"{reply_code} {reply_text}" if reply_code else reply_text)
        self.reply_code = reply_code
        self.reply_text = reply_text
        self.class_id = class_id
        self.method_id = method_id
        self._first: ClosedError | None = None

    def again(self) -> Self:
        """Return a copy of this stored error, to be raised. The stored error itself must not be raised."""
        # Its traceback would refer to the connection that stores it, a reference cycle.
        copy = type(self)(self.reply_code, self.reply_text, self.class_id, self.method_id)
        copy._first = self._first or self
        return copy

    def is_same(self, other: "ClosedError | None") -> bool:
        """Return True if both are the same error. A copy made by ``again`` counts as its original."""
        return other is not None and (self._first or self) is (other._first or other)


class ConnectionClosed(ClosedError):
    """The connection was closed. It and its channels cannot be used any more."""


class ChannelClosed(ClosedError):
    """The channel was closed. It cannot be used any more; its connection can."""


class Timeout(ClientError, TimeoutError):
    """The broker did not answer in time. Do not use the channel again: a later call may get the answer."""


class NotConfirmed(ClientError):
    """The broker refused a publish, or the client cannot know whether the broker has accepted it."""


class Refused(NotConfirmed):
    """The broker refused a message by basic.nack or MQTT reason code, for example because a queue is full."""


class Unroutable(NotConfirmed):
    """The broker returned a mandatory message, because it was routed to no queue."""


class Disconnected(NotConfirmed):
    """There is no connection, and no further attempt to connect will be made."""


def is_distrust(error: BaseException | None) -> bool:
    """Return whether a TLS certificate was refused for a lasting reason, such as another host's name. An
    expired certificate, or one not valid yet, does not count.
    """
    code = getattr(error, "verify_code", None)  # only ssl.SSLCertVerificationError has it
    return code is not None and code not in _IN_TIME_CODES
