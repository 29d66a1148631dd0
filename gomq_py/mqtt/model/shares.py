"""Shares: groups of sessions that share a subscription (MQTT 5 §4.8.2), and which of them gets a message.

Beside the MQTT exchange, which has one Share for each share name and filter, made by the first binding to it
and gone with the last. Compiled, because a message to a share is given to a member here. Never yields.
"""
from gomq_py.broker.routing import destination as _destination
from gomq_py.broker.routing.destination import LATER


class Member:
    """A subscription of ``session`` that leads to ``target``, its queue or sink; ``count``: how many bindings
    say so; ``is_allowed``: its client may have what comes by it.
    """

    __slots__ = ("session", "target", "count", "is_allowed")

    def __init__(self, session, target):
        self.session = session
        self.target = target
        self.count = 1
        self.is_allowed = True


class Share(_destination.Destination):
    """The Destination of the members together: each message goes to one of them.

    Those that are connected have turns, in the order in which they subscribed; where none is, those that are
    absent have. Who cannot take a message, for lack of room, is passed over.
    """

    __slots__ = ("members", "next", "departed")

    def __init__(self, name, departed):
        """``departed``: destinations that are gone and still bound, of the exchange."""
        _destination.Destination.__init__(self, name, False)
        self.members = []
        self.next = 0
        self.departed = departed

    def add(self, session, target):
        """A session has subscribed, once more counts."""
        for member in self.members:
            if member.target is target:
                member.count += 1
                return
        self.members.append(Member(session, target))
        self.refresh()

    def remove(self, target):
        """Take back one ``add``."""
        for place, member in enumerate(self.members):
            if member.target is target:
                member.count -= 1
                if not member.count:
                    del self.members[place]
                    if place < self.next:
                        self.next -= 1
                    self.refresh()
                return

    def refresh(self):
        """Something about the members has changed, of which follows what is asked of a destination."""
        for member in self.members:
            member.is_allowed = len(member.session.allowed([self.name])) > 0
        self.durable = any([member.target.durable for member in self.members])
        self.failed = any([member.target.failed for member in self.members])

    def publish(self, message):
        """As Destination.publish: the answer of the member that gets the message, 0 where nobody takes it."""
        answer = self._publish(message, True)
        return answer if answer else self._publish(message, False)

    def _publish(self, message, is_connected):
        """Give the message to the next of the members that are connected, or that are not."""
        members = self.members
        count = len(members)
        first = self.next
        for step in range(count):
            place = first + step
            if place >= count:
                place -= count
            member = members[place]
            if (
                (member.session.connection is not None) != is_connected or not member.is_allowed
                or member.target in self.departed
            ):
                continue
            answer = member.target.publish(message)
            if answer == LATER:
                self.next = place  # it is asked again, for the same message
                return LATER
            if answer:
                self.next = place + 1 if place + 1 < count else 0
                return answer
            self.unable = member.target.unable
        return 0


class Shares:
    """Those of one exchange, by the filters of their bindings."""

    def __init__(self, departed):
        self._by_filter = {}
        self._departed = departed

    def add(self, topic_filter, session, target):
        """A session shares a subscription. Returns its Share, and whether that is new."""
        share = self._by_filter.get(topic_filter)
        is_new = share is None
        if is_new:
            share = self._by_filter[topic_filter] = Share(topic_filter, self._departed)
        share.add(session, target)
        return share, is_new

    def remove(self, topic_filter, target):
        """Take back one ``add``. Returns its Share, and whether nobody is left in it."""
        share = self._by_filter[topic_filter]
        share.remove(target)
        if share.members:
            return share, False
        del self._by_filter[topic_filter]
        return share, True

    def of(self, topic_filters):
        """The shares under these filters."""
        return [self._by_filter[one] for one in topic_filters if one in self._by_filter]
