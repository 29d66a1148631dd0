"""Login: authenticates leader and follower to each other before any data is sent.

State machines without I/O or clock. The connection feeds them the frames of a peer that has not logged in,
and sends the returned bytes. Both sides sign both nonces with the cluster's secret (HMAC-SHA256), the
follower first. Before that the leader reveals only the fields of CHALLENGE. The login does not protect later
frames: an insecure network needs TLS.

A follower logs in for the leader's events (HELLO), or to pass a client on (FORWARD). After FORWARD the leader
serves the client on this connection.
"""
import hmac
import os
from typing import Any

from gomq_py.cluster.wire import frames, messages
from gomq_py.cluster.wire.messages import NO_ID, NONCE_OCTETS

MIN_SECRET_OCTETS = 16
# Each promotion takes the next epoch, so no cluster comes near it; a folder that had taken over the highest
# number of the field could never be promoted.
MAX_EPOCH = 1 << 62
# The text of the leader's REFUSED by which a follower knows that it is not the node that it seems to be.
COPIED = "another node has this id: a copied data folder? remove .cluster of one"


class LoginRefused(Exception):
    """The login has failed. The text says why. ``answer``: bytes to send before closing; may be empty."""

    def __init__(self, text, answer=b""):
        super().__init__(text)
        self.text = text
        self.answer = answer


class CopiedFolder(LoginRefused):
    """The leader refuses this follower because another process follows it with the same node id."""


class LeaderLogin:
    """The leader's side of a login.

    Once ``done``, ``hello`` is the follower's messages.Hello, or a messages.Forward. ``is_sync``: the
    follower needs a full sync. ``is_successor``, ``counts_received``: see messages.Welcome. ``can_resume(run,
    position)`` returns whether the stream still has all events after the position.
    """

    def __init__(self, secret, cluster_id, epoch, run, can_resume, random=os.urandom, counts_received=False):
        self._secret = _checked(secret)
        self._challenge = messages.Challenge(cluster_id, epoch, run, random(NONCE_OCTETS))
        self._can_resume = can_resume
        self._counts_received = counts_received
        self._signed = b""
        self._role = b""
        self._next = {frames.HELLO: self._greeted, frames.FORWARD: self._asked_to_forward}
        self.hello: Any = None
        self.is_sync = True
        self.is_successor = False
        self.done = False

    def feed(self, frame):
        """Return the bytes to send in answer to a received frame. Raises LoginRefused."""
        try:
            return _step(self, frame)
        except LoginRefused as error:
            error.answer = self._frame(frames.REFUSED, messages.Refused(error.text))
            raise

    def _greeted(self, payload):
        return self._challenged(b"follower", messages.Hello.decode(payload), payload)

    def _asked_to_forward(self, payload):
        return self._challenged(b"forwarder", messages.Forward.decode(payload), payload)

    def _challenged(self, role, hello, payload):
        self._role, self.hello = role, hello
        self._signed = payload + self._challenge.encode()
        self._next = {frames.PROOF: self._proved}
        return self._frame(frames.CHALLENGE, self._challenge)

    def _proved(self, payload):
        digest = messages.Proof.decode(payload).digest
        if not hmac.compare_digest(digest, _sign(self._secret, self._role, self._signed)):
            raise LoginRefused("the follower has another secret")
        _check_follower(self.hello, self._challenge)
        hello = self.hello
        self.is_sync = isinstance(hello, messages.Hello)
        if self.is_sync and NO_ID not in (hello.cluster_id, hello.run):
            self.is_sync = not self._can_resume(hello.run, hello.position)
            self.is_successor = not self.is_sync and hello.run != self._challenge.run
        self.done = True
        welcome = messages.Welcome(b"", self.is_sync, self._counts_received, self.is_successor)
        signature = _sign(self._secret, b"leader", self._signed + bytes([welcome.flags]))
        return self._frame(frames.WELCOME, welcome._replace(digest=signature))

    def _frame(self, kind, message):
        return frames.encode(kind, message.encode(), self._challenge.epoch)


class FollowerLogin:
    """The follower's side of a login: send ``hello()``, then feed the leader's answers.

    Before ``done``, ``cluster_id``, ``epoch`` and ``run`` are the follower's own. If ``cluster_id`` is
    NO_ID, the folder is empty; if ``run`` is NO_ID, the follower has no position. Once ``done``, all three
    are the leader's. ``is_sync``: a full sync comes first. ``counts_received``, ``is_successor``: see
    messages.Welcome.
    """

    _KIND, _ROLE = frames.HELLO, b"follower"

    def __init__(self, secret, node_id, cluster_id, epoch, run, position, name, random=os.urandom):
        self._begin(secret, cluster_id, epoch, run, messages.Hello(
            node_id, cluster_id, epoch, run, position, random(NONCE_OCTETS), name))

    def _begin(self, secret, cluster_id, epoch, run, hello):
        self._secret = _checked(secret)
        self.cluster_id = cluster_id
        self.epoch = epoch
        self.run = run
        self.is_sync = True
        self.counts_received = self.is_successor = False
        self.done = False
        self._hello = hello.encode()
        self._challenge: Any = None
        self.refused_in = 0  # epoch of which a leader that has refused this node says to be; it has no proof
        self._signed = b""
        self._next: dict[int, Any] | None = {frames.CHALLENGE: self._challenged}

    def hello(self):
        """Return the bytes to send first."""
        return frames.encode(self._KIND, self._hello, self.epoch)

    def feed(self, frame):
        """Return the bytes to send in answer to a received frame; b"" once ``done``. Raises LoginRefused."""
        if frame.kind == frames.REFUSED:
            self._next = None
            self.refused_in = 0 if self._challenge is None else self._challenge.epoch
            text = messages.Refused.decode(frame.payload).text
            raise (CopiedFolder if text == COPIED else LoginRefused)(f"the leader refuses: {text!r}")
        return _step(self, frame)

    def _challenged(self, payload):
        challenge = messages.Challenge.decode(payload)
        _check_leader(challenge, self.cluster_id, self.epoch)
        self._challenge = challenge
        self._signed = self._hello + payload
        self._next = {frames.WELCOME: self._welcomed}
        proof = messages.Proof(_sign(self._secret, self._ROLE, self._signed))
        return frames.encode(frames.PROOF, proof.encode(), self.epoch)

    def _welcomed(self, payload):
        welcome = messages.Welcome.decode(payload)
        signature = _sign(self._secret, b"leader", self._signed + bytes([welcome.flags]))
        if not hmac.compare_digest(welcome.digest, signature):
            raise LoginRefused("the leader has not proved that it knows the secret")
        self._check_welcome(welcome)
        self.cluster_id, self.epoch, self.run, _ = self._challenge
        _, self.is_sync, self.counts_received, self.is_successor = welcome
        self.done = True
        return b""

    def _check_welcome(self, welcome):
        is_asked = self.run != NO_ID and (self.run != self._challenge.run) == welcome.is_successor
        if not welcome.is_sync and not is_asked:
            raise LoginRefused("the leader goes on without a sync in another run than this node asked for")


class ForwarderLogin(FollowerLogin):
    """The follower's side of a login that passes a client on: see messages.Forward.

    ``listener``: name of the leader's listener. ``proxy``: the client's PROXY header.
    """

    _KIND, _ROLE = frames.FORWARD, b"forwarder"

    def __init__(self, secret, node_id, cluster_id, epoch, name, listener, proxy, random=os.urandom):
        self._begin(secret, cluster_id, epoch, NO_ID, messages.Forward(
            node_id, cluster_id, epoch, random(NONCE_OCTETS), name, listener, proxy))

    def _check_welcome(self, welcome):
        if welcome.is_sync:
            raise LoginRefused("the leader takes this connection for a follower's")


def _step(login, frame):
    """Pass a frame to the method that expects its kind. Raises LoginRefused for every error of the peer."""
    # After one the login accepts nothing.
    expected, login._next = login._next, None
    if expected is None or frame.kind not in expected:
        raise LoginRefused(f"{frames.KINDS[frame.kind]} is not expected here")
    try:
        return expected[frame.kind](frame.payload)
    except messages.MessageError as error:
        raise LoginRefused(str(error)) from None


def _check_follower(hello, challenge):
    if hello.cluster_id not in (NO_ID, challenge.cluster_id):
        raise LoginRefused(
            f"the follower's folder belongs to cluster {hello.cluster_id.hex()}, not to "
            f"{challenge.cluster_id.hex()}"
        )
    if hello.epoch > challenge.epoch:
        raise LoginRefused(
            f"the follower has seen epoch {hello.epoch}, the leader is in {challenge.epoch}: it must not lead"
        )


def _check_leader(challenge, cluster_id, epoch):
    if NO_ID in (challenge.cluster_id, challenge.run):
        raise LoginRefused("the leader names no cluster or run")
    if cluster_id not in (NO_ID, challenge.cluster_id):
        raise LoginRefused(
            f"this folder belongs to cluster {cluster_id.hex()}, the leader to {challenge.cluster_id.hex()}"
        )
    if challenge.epoch > MAX_EPOCH:
        raise LoginRefused(f"the leader is in epoch {challenge.epoch}, the highest is {MAX_EPOCH}")
    if challenge.epoch < epoch:
        raise LoginRefused(f"the leader is in epoch {challenge.epoch}, this folder has seen {epoch}")


def _sign(secret, role, signed):
    return hmac.digest(secret, role + signed, "sha256")


def _checked(secret):
    if len(secret) < MIN_SECRET_OCTETS:
        raise ValueError(f"the secret of a cluster has less than {MIN_SECRET_OCTETS} bytes")
    return secret
