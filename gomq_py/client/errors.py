"""What can go wrong on a client connection. A leaf: the codes and texts are the broker's own."""

# OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and _HAS_EXPIRED: a clock is set, a certificate renewed.
_IN_TIME_CODES = {9, 10}


class ClientError(Exception):
    """Base of everything the client raises on account of the broker or the network."""


class ClosedError(ClientError):
    """Closed, by the broker, by us or by the network.

    ``reply_code`` is 0 where no close method told why; class and method id name what failed.
    """

    def __init__(self, reply_code, reply_text, class_id=0, method_id=0):
        super().__init__(f"{reply_code} {reply_text}" if reply_code else reply_text)
        self.reply_code = reply_code
        self.reply_text = reply_text
        self.class_id = class_id
        self.method_id = method_id
        self._first = None

    def again(self):
        """Another one that says the same, for whoever raises what is kept: a raised error has the frames that
        it went through, and with them what keeps it, which so would hold itself in a circle.
        """
        copy = type(self)(self.reply_code, self.reply_text, self.class_id, self.method_id)
        copy._first = self._first or self
        return copy

    def is_same(self, other):
        """Whether both tell of the same end."""
        return other is not None and (self._first or self) is (other._first or other)


class ConnectionClosed(ClosedError):
    """The connection is of no use any more, nor are its channels."""


class ChannelClosed(ClosedError):
    """The channel is of no use any more; the connection goes on."""


class Timeout(ClientError, TimeoutError):
    """The broker did not answer in time. The answer may still come: the channel is not to be used again."""


class NotConfirmed(ClientError):
    """A publish that the broker did not take on, or of which nobody knows whether it did."""


class Refused(NotConfirmed):
    """The broker refused the message (basic.nack): a queue is full, or the disk failed."""


class Unroutable(NotConfirmed):
    """No queue is bound to the key: the message came back."""


class Disconnected(NotConfirmed):
    """No connection, and none to be waited for any longer."""


def is_distrust(error):
    """Whether it is a certificate that no waiting mends: of another authority, or of another host."""
    code = getattr(error, "verify_code", None)  # which only an ssl.SSLCertVerificationError has
    return code is not None and code not in _IN_TIME_CODES
