"""Shelf: a message store whose messages are all taken, for messages that are kept and not delivered.

A leaf of mqtt.model, between keyed_store and storage; compiled, because it reads the store's mappings. Never
yields.
"""
from gomq_py.storage.errors import StoreError
from gomq_py.storage.message import Message
from gomq_py.storage.stores.message_store import MessageStore  # noqa: F401  (its .pxd types the store)

# Flag of records of any kind: the key has no message any more.
TOMBSTONE = 0x80


class Shelf:
    """A MessageStore whose messages are all taken. After ``look`` and ``take_next``: ``octets`` of the body
    and ``expires_at_ms`` of that message.
    """

    __slots__ = ("store", "shown", "expires_at_ms", "octets")

    def __init__(self, store):
        self.store = store
        self.shown = Message()
        self.expires_at_ms = self.octets = 0

    def add(self, message):
        """Store a copy of the message, taken. Returns its location. Raises StoreError."""
        self.store.append(message)
        if not self.take_next(self.shown):
            raise StoreError(self.store.folder, 0, "what was appended is not there")
        return message.location

    def look(self, location):
        """Read a message into ``shown``. False if the store is fenced."""
        if not self.store.read(location, self.shown):
            return False
        self.expires_at_ms = self.shown.expires_at_ms
        self.octets = self.shown.body_length
        return True

    def take_next(self, message):
        """Take the oldest ready message and show it. False if there is none."""
        if not self.store.peek(message):
            return False
        self.store.shift()
        self.expires_at_ms = message.expires_at_ms
        self.octets = message.body_length
        return True

    def is_tombstone(self, message):
        """Whether the message deletes its key."""
        return message.flags & TOMBSTONE != 0

    def again(self, location):
        """Rewrite a message behind all others. Returns its location; 0: store fenced. Raises StoreError."""
        if not self.store.read(location, self.shown):
            return 0
        message = Message()
        message.kind = self.shown.kind
        message.flags = self.shown.flags
        message.persistent = True
        message.priority = self.shown.priority
        message.timestamp_ms = self.shown.timestamp_ms
        message.expires_at_ms = self.shown.expires_at_ms
        message.buffer = self.shown.buffer
        message.routing_at = self.shown.routing_at
        message.routing_length = self.shown.routing_length
        message.properties_at = self.shown.properties_at
        message.properties_length = self.shown.properties_length
        message.body_at = self.shown.body_at
        message.body_length = self.shown.body_length
        return self.add(message)
