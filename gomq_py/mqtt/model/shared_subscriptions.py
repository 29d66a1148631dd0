"""Shared subscriptions: give each message to one member of a group of sessions with the same share name and
filter (MQTT 5 §4.8.2).

The MQTT exchange has one SharedSubscription per share name and filter, made by the first binding and dropped
with the last. Never switches greenlets.
"""
from gomq_py.broker.routing import route as _routes
from gomq_py.broker.routing.route import LATER

# How a client reads: its sink has room; it is full, so that publishers wait; it is late, and loses messages.
ROOM, FULL, LATE = 0, 1, 2


class Member:
    """A session in a shared subscription.

        target        the session's queue, or its destination for QoS 0
        count         number of its bindings
        is_present    the member is one of the connected members
        is_allowed    the client may get messages; valid while its Interests.rights equal ``rights``
    """

    __slots__ = ("session", "target", "interests", "count", "is_present", "rights", "is_allowed")

    def __init__(self, session, target):
        self.session = session
        self.target = target
        self.interests = session.interests
        self.count = 1
        self.is_present = session.connection is not None
        self.rights = 0
        self.is_allowed = False

    def reading(self):
        """Return how the member's client reads: ROOM, FULL or LATE. Always ROOM if ``target`` is a queue."""
        sink = self.session.sink
        if self.target is not sink or sink.room() > 0:
            return ROOM
        return LATE if sink.is_late() else FULL

    def may_get(self, topic_filter):
        """Return whether the client may receive by this filter. Cached until the client's rights change."""
        if self.rights != self.interests.rights:
            self.rights = self.interests.rights
            self.is_allowed = len(self.session.allowed([topic_filter])) > 0
        return self.is_allowed


class Rotation:
    """Members of a shared subscription, served in turn. ``next``: index of the next member."""

    __slots__ = ("members", "next")

    def __init__(self):
        self.members = []
        self.next = 0

    def add(self, member):
        self.members.append(member)

    def remove(self, member):
        for place, other in enumerate(self.members):
            if other is member:
                del self.members[place]
                if place < self.next:
                    self.next -= 1
                elif self.next >= len(self.members):
                    self.next = 0
                return


class SharedSubscription(_routes.Destination):
    """The Destination of all members of a shared subscription. Each message goes to one member. Connected
    members take turns, in the order in which they subscribed or came back. Absent members get only messages
    that no connected member takes.
    """

    # A member that refuses a message is skipped. The shared subscription is durable if a member is. When a
    # member's store fails, another SharedSubscription replaces this one for good (``renewed``), because
    # messages that went to the member may be lost.
    __slots__ = ("members", "present", "absent", "durables", "departed", "was_asked")

    def __init__(self, name, departed):
        """``departed``: dict whose keys are the exchange's deleted destinations that still have bindings."""
        _routes.Destination.__init__(self, name, False)
        self.members = {}  # by target
        self.present = Rotation()
        self.absent = Rotation()
        self.durables = 0
        self.departed = departed
        self.was_asked = False  # whether a member was asked for this message

    def add(self, session, target):
        """Add ``session``, whose messages go to ``target``. Each call needs its own remove()."""
        member = self.members.get(target)
        if member is not None:
            member.count += 1
            return
        member = self.members[target] = Member(session, target)
        self._rotation_of(member).add(member)
        self._count_durable(member, 1)

    def remove(self, target):
        """Undo one add() of a session with this target."""
        member = self.members[target]
        member.count -= 1
        if not member.count:
            del self.members[target]
            self._rotation_of(member).remove(member)
            self._count_durable(member, -1)

    def move(self, target):
        """Move a member to the connected or absent members, after its client connected or disconnected."""
        member = self.members.get(target)
        if member is not None and member.is_present != (member.session.connection is not None):
            self._rotation_of(member).remove(member)
            member.is_present = not member.is_present
            self._rotation_of(member).add(member)

    def renewed(self):
        """Mark this object as failed, after a member's store failed. Returns its successor."""
        self.failed = True
        share = SharedSubscription(self.name, self.departed)
        share.members, share.present, share.absent = self.members, self.present, self.absent
        share.durables, share.durable = self.durables, self.durable
        return share

    def publish(self, message):
        """Publish to the next member, if possible to a member with room. Returns the member's answer (1, or
        LATER to try again later); 0 if all members refuse the message; 1 if no member may receive it, or all
        are being deleted.
        """
        self.was_asked = False
        answer = (
            self._publish(message, self.present, ROOM) or self._publish(message, self.present, FULL)
            or self._publish(message, self.present, LATE) or self._publish(message, self.absent, ROOM))
        return answer if answer or self.was_asked else 1

    def next_store(self):
        """Return the store in which the next member would put a message; None if no member may receive it."""
        for rotation in (self.present, self.absent):
            members = rotation.members
            for step in range(len(members)):
                member = members[(rotation.next + step) % len(members)]
                if member.may_get(self.name) and member.target not in self.departed:
                    return member.target.next_store()
        return None

    def stores(self):
        """Return a list of the stores of all members. Each message is in only one of these stores."""
        return [store for target in self.members for store in target.stores()]

    def _publish(self, message, rotation, reading):
        """Publish to the next member with reading() == ``reading`` that takes it. Returns 1, LATER or 0."""
        later = None
        members = rotation.members
        count = len(members)
        first = rotation.next
        for step in range(count):
            place = first + step
            if place >= count:
                place -= count
            member = members[place]
            if member.reading() != reading:
                continue
            if not member.may_get(self.name) or member.target in self.departed:
                continue
            self.was_asked = True
            answer = member.target.publish(message)
            if answer == LATER and reading == FULL:  # the member that first has room again gets the message
                if later is None:
                    later = message.lacking
                else:
                    later.join(message.lacking)
                continue
            if answer == LATER:
                rotation.next = place  # the member is asked again for the same message
                return LATER
            if answer:
                rotation.next = place + 1 if place + 1 < count else 0
                return answer
            self.unable = member.target.unable
        if later is None:
            return 0
        message.lacking = later
        return LATER

    def _rotation_of(self, member):
        return self.present if member.is_present else self.absent

    def _count_durable(self, member, change):
        if member.target.durable:
            self.durables += change
            self.durable = self.durables > 0


class SharedSubscriptions:
    """The shared subscriptions of an exchange. ``by_filter``: {filter in bindings: SharedSubscription}."""

    def __init__(self, departed):
        self.by_filter = {}
        self._of = {}  # session: {filter: how many bindings}
        self._departed = departed

    def add(self, topic_filter, session, target):
        """Add a session to a shared subscription. Returns (SharedSubscription, whether it is new)."""
        share = self.by_filter.get(topic_filter)
        is_new = share is None
        if is_new:
            share = self.by_filter[topic_filter] = SharedSubscription(topic_filter, self._departed)
        share.add(session, target)
        filters = self._of.setdefault(session, {})
        filters[topic_filter] = filters.get(topic_filter, 0) + 1
        return share, is_new

    def remove(self, topic_filter, session, target):
        """Undo one add(). Returns (SharedSubscription, whether it has no members any more)."""
        share = self.by_filter[topic_filter]
        share.remove(target)
        filters = self._of[session]
        filters[topic_filter] -= 1
        if not filters[topic_filter]:
            del filters[topic_filter]
            if not filters:
                del self._of[session]
        if share.members:
            return share, False
        del self.by_filter[topic_filter]
        return share, True

    def of(self, session):
        """Return a list of the SharedSubscriptions of which a session is a member."""
        filters = self._of.get(session)
        return [self.by_filter[topic_filter] for topic_filter in filters] if filters else []

    def renew(self, share):
        """Replace a SharedSubscription by a new one, and return the new one."""
        self.by_filter[share.name] = renewed = share.renewed()
        return renewed
