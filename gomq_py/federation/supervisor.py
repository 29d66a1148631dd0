"""Federation: starts and stops the federation links of one broker, as policies, upstreams, exchanges and
queues require.

The node makes the Federation before the broker is recovered. The Federation then registers its parameters and
listeners with the broker's Kinds (broker.topology.kinds). The node starts it when the listeners are open, and
stops it before they close.
"""
import time
from operator import methodcaller

from gevent.event import Event

from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.features.arguments import STREAM, queue_type_of
from gomq_py.broker.features.federation import KEYS, UPSTREAM, UPSTREAM_SET
from gomq_py.broker.policies.policy import EXCHANGE
from gomq_py.broker.signals.events import node_name
from gomq_py.broker.verbs.access import Access, may_enter, refusal
from gomq_py.errors import NoPermission
from gomq_py.federation.parameters import (
    PURPOSE, UpstreamComponent, check_set, check_upstream, fault_of, upstreams_for, uris_of,
)
from gomq_py.hub.scheduler import Job, SliceClock
from gomq_py.links.local import ADMINISTRATOR, Setters
from gomq_py.links.uris import parse
from gomq_py.observability.log import logger

LOG = logger("federation")
QUEUE = "queue"
KINDS = (EXCHANGE, QUEUE)
# Events that it listens to.
HEARD = ("binding.created", "binding.deleted", *[f"{kind}.deleted" for kind in KINDS])
# Ends of a link in its errors; copied from links.session, which a broker without upstreams does not load.
SOURCE, DESTINATION = "source", "destination"
# Shortest pause in seconds before a link that ended by itself is restarted.
AGAIN_S = 30
# Time in seconds to settle messages in flight at the end: a little more than a link takes.
END_S = 6.0
STATUS, REMOVED = "federation.link.status", "federation.link.removed"
_described = methodcaller("described")


class LinkContext:
    """Objects and checks that all federation links of one broker share.

    ``make_link``: called in place of the class links.link.Link, or None. ``removing``: {(URI, name of a queue
    upstream): Event} of cleanups in progress. Links call ``on_change(link)`` and ``on_end(link, reason)``.
    """

    def __init__(self, broker, hub, connector, on_change, on_end, make_link):
        self.hub = hub
        self.make_link = make_link
        self.node_name = node_name()
        self.removing = {}
        self.on_change = on_change
        self.on_end = on_end
        self._broker = broker
        self._connector = connector
        self._setters = Setters(broker)

    def cluster_name(self):
        return self._broker.cluster_name

    def connect(self, uri, vhost, upstream, by, name):
        """Return a client's Connection for a link of this vhost. May switch greenlets.

        ``upstream``: name of the upstream, set by user ``by``. At a URI of this broker, the connection has
        this user's rights. ``name``: the connection's name. Raises ValueError, OSError, ClientError.
        """
        try:
            user = self._setters.user_of(by, f"upstream '{upstream}'")
        except ValueError:
            if self._connector.is_local(uri):
                raise
            user = None
        return self._connector.connect(
            uri, user, name=name, vhost=vhost.name, account=(by, vhost.name))

    @staticmethod
    def set_by(vhost, upstream, before):
        """Return the name of the user who set the upstream, or ``before`` if the upstream was deleted."""
        # Cleanup still logs in.
        there = UPSTREAM, upstream
        return vhost.set_by.get(there) if there in vhost.parameters else before

    def is_administrators(self, vhost, upstream):
        """True if an administrator set the upstream. Links of administrators may connect to more hosts."""
        try:
            return ADMINISTRATOR in self._setter(vhost, upstream).tags
        except ValueError:
            return False

    def refusal(self, vhost, upstream, kind, name, exchange):
        """Return why the link is not allowed, as text that begins with "source" or "destination"; None if it
        is allowed.

        The user who set the upstream must have the right to publish to ``exchange`` and, if the upstream is
        in this broker, to read from it. Users who set the policy or the set must be allowed to choose the
        upstream for the exchange or queue ``name``.
        """
        end = DESTINATION
        try:
            user = self._setter(vhost, upstream.name)
            self._may_enter(user, vhost.name).check_write(EXCHANGE, exchange)
            end = SOURCE
            for uri in filter(self._connector.is_local, upstream.uris):
                self._may_enter(user, parse(uri).path or vhost.name).check_read(kind, getattr(upstream, kind))
            for what, by in upstream.chosen_by:
                self.check_chosen(
                    vhost, what, by, upstream.name, upstream.uris, kind, getattr(upstream, kind), name)
        except ValueError as error:
            return f"{end}: {error}"
        except NoPermission as error:
            return f"{end}: {error.text}"
        return None

    def check_chosen(self, vhost, what, by, upstream, uris, kind, there, here=None):
        """Check that user ``by`` may use another user's upstream, and so its login. Raises NoPermission,
        ValueError.

        ``what``: a policy or a set of upstreams that user ``by`` has set. The link takes messages from
        ``there``, an exchange or queue upstream, to ``here`` in this vhost.
        """
        # If the upstream is in this broker, ``by`` needs the right to read ``there``. The rights in another
        # broker are unknown: if ``there`` and ``here`` differ, ``by`` needs the right to read the name
        # ``there`` in this vhost, unless ``by`` is an administrator.
        if by is not None and by == vhost.set_by.get((UPSTREAM, upstream)):
            return
        local = [parse(uri).path or vhost.name for uri in uris if self._connector.is_local(uri)]
        is_renamed = len(local) < len(uris) and there != here
        if not local and not is_renamed:
            return
        user = self._setters.user_of(by, what)
        for vhost_name in local:
            self._may_enter(user, vhost_name).check_read(kind, there)
        if is_renamed and ADMINISTRATOR not in user.tags:
            self._may_enter(user, vhost.name).check_read(kind, there)

    @staticmethod
    def _may_enter(user, vhost_name):
        """Return the user's Access to the vhost. Raises NoPermission if the user may not enter it."""
        if not may_enter(user, vhost_name):
            raise NoPermission(refusal(f"vhost '{vhost_name}'", user))
        return Access(user, vhost_name)

    def _setter(self, vhost, upstream):
        return self._setters.user_of(vhost.set_by.get((UPSTREAM, upstream)), f"upstream '{upstream}'")

    def check_setter(self, name, value, by):
        """Raise ValueError if user ``by`` may not set this upstream or its URIs."""
        user = self._setters.user_of(by, f"upstream '{name}'")
        try:
            self._connector.check(value["uri"], user=user)
        except ValueError as error:
            raise ValueError(f"uri: {error}") from None

    def check_set_setter(self, vhost, name, value, by):
        """Raise ValueError if user ``by`` may not use an exchange or queue upstream that the set ``value``
        names. Checks only names that override those of an upstream.
        """
        for entry in value:
            upstream = entry["upstream"]
            there = vhost.parameters.get((UPSTREAM, upstream))
            if there is None or fault_of(vhost, UPSTREAM, upstream) is not None:
                continue
            for kind in KINDS:
                if entry.get(kind, there.get(kind)) != there.get(kind):
                    try:
                        self.check_chosen(
                            vhost, f"{UPSTREAM_SET} '{name}'", by, upstream, uris_of(there, vhost.name), kind,
                            entry[kind])
                    except NoPermission as error:
                        raise ValueError(f"{kind} of upstream '{upstream}': {error.text}") from None


class Federation(Job):
    """Supervises a broker's federation links. As a Job, it finds in slices which must start or stop."""

    name = "federation links"

    def __init__(self, kinds):
        """Register with ``kinds``: handlers of upstreams and sets, and listeners for policies and vhosts."""
        super().__init__()
        self._broker = self._hub = self._context = self._connector = None
        self._is_started = False
        self._federated = {}  # vhost: {(kind, name): {Upstream: link}}
        self._look_at = {}  # (vhost, kind, name) to check, as keys, in order
        self._clock = SliceClock()
        self._is_changed = Event()  # set when a link has changed
        kinds.add_component(
            UPSTREAM, UpstreamComponent(
                UPSTREAM, lambda name, value: check_upstream(name, value, self._check_uri),
                self._upstreams_changed, self._check_setter))
        kinds.add_component(UPSTREAM_SET, UpstreamComponent(
            UPSTREAM_SET, check_set, self._upstreams_changed, self._check_set_setter))
        kinds.on_policies(self._policies_looked_at)
        kinds.on_vhost(_nothing, self._vhost_gone)

    def open(self, broker, hub, connector, make_link=None):
        """Use the recovered broker and connector from now on. ``make_link``: see LinkContext."""
        self._broker, self._hub, self._connector = broker, hub, connector
        self._context = LinkContext(broker, hub, connector, self._link_changed, self._link_ended, make_link)
        broker.events.subscribe(self._heard, HEARD)
        broker.users.rights_watchers.append(self._rights_changed)

    def start(self):
        """Start all links. The node calls this when the listeners are open."""
        self._is_started = True
        for vhost, there in self._federated.items():
            for kind, name in there:
                self._look(vhost, kind, name)

    def stop(self):
        """Stop all links, and wait up to END_S for messages in flight. Queues upstream remain. May switch
        greenlets.
        """
        self._is_started = False
        self._look_at.clear()
        if self._broker is not None:
            self._broker.events.unsubscribe(self._heard)
        links = self.links()
        for link in links:
            link.stop()
        until_s = time.monotonic() + END_S
        while not all(link.has_ended for link in links) and (rest_s := until_s - time.monotonic()) > 0:
            self._is_changed.clear()
            self._is_changed.wait(rest_s)
        self._federated.clear()

    # called by doors

    def links(self, vhost=None):
        """Return a list of the links of one vhost (by name), or of all vhosts."""
        return [
            link for one, there in self._federated.items() if vhost is None or one.name == vhost
            for links in there.values() for link in links.values()
        ]

    def restart(self, vhost, link_id, by):
        """Make the link with this id reconnect. Returns False if there is none. Raises OSError, ValueError.
        ``vhost``: the vhost's name. ``by``: the user who asks.
        """
        # If the link's upstream, set or policy was stored while the broker had no federation
        # (Parameters.waits), it takes effect now, as if user ``by`` had just set it.
        for link in self.links(vhost):
            if link.id == link_id:
                for component, name in link.upstream.waiting:
                    self._set_again(link.vhost, component, name, by)
                link.restart()
                return True
        return False

    def _set_again(self, vhost, component, name, by):
        if self._broker.parameters.waits(vhost, component, name):
            self._broker.parameters.set(vhost, component, name, vhost.parameters[component, name], by)

    # changes

    def _check_uri(self, uri):
        if self._connector is not None:  # None before open(): stored URIs were checked
            parse(uri)

    def _check_setter(self, vhost, name, value, by):
        if self._context is not None:
            self._context.check_setter(name, value, by)

    def _check_set_setter(self, vhost, name, value, by):
        if self._context is not None:
            self._context.check_set_setter(vhost, name, value, by)

    def _rights_changed(self, user):
        for vhost, there in self._federated.items():
            if any(user.name in dict(link.upstream.chosen_by).values()
                   for links in there.values() for link in links.values()):
                self._upstreams_changed(vhost)
        for link in self.links():
            # None: the setter is gone, maybe this very user, just deleted
            if link.vhost.set_by.get((UPSTREAM, link.upstream.name)) in (user.name, None):
                link.rights_changed()

    def _policies_looked_at(self, vhost, entity):
        kind = EXCHANGE if isinstance(entity, Exchange) else QUEUE
        there = self._federated.get(vhost)
        is_federated = not KEYS.isdisjoint(entity.in_force.definition) and _may_be_federated(entity)
        if is_federated:
            self._federated.setdefault(vhost, {}).setdefault((kind, entity.name), {})
        elif there is None or (kind, entity.name) not in there:
            return
        self._look(vhost, kind, entity.name)

    def _upstreams_changed(self, vhost):
        for kind, name in self._federated.get(vhost, ()):
            self._look(vhost, kind, name)

    def _vhost_gone(self, vhost):
        for kind, name in list(self._federated.get(vhost, ())):
            self._match(vhost, kind, name)

    def _heard(self, key, subjects):
        what, _, happened = key.partition(".")
        if what == "binding":
            self._binding_changed(subjects[0], happened == "created")
        elif happened == "deleted" and what in KINDS:
            vhost = self._broker.vhosts.get(subjects[0].vhost)
            if vhost in self._federated and (what, subjects[0].name) in self._federated[vhost]:
                self._look(vhost, what, subjects[0].name)

    def _binding_changed(self, binding, is_made):
        source = binding.source
        there = self._federated.get(self._broker.vhosts.get(source.vhost))
        if not there:
            return
        for (kind, name), links in there.items() if source.internal else (
            ((EXCHANGE, source.name), there.get((EXCHANGE, source.name), {})),
        ):
            if kind != EXCHANGE or name != source.name and not _hands_on(self._broker, source, name):
                continue
            for link in links.values():
                (link.binding_made if is_made else link.binding_gone)(binding)

    # making links match the policies

    def _look(self, vhost, kind, name):
        if self._is_started:
            self._look_at[vhost, kind, name] = None
            self._hub.scheduler.start(self)

    def step(self):
        self._clock.begin()
        while self._look_at:
            place = next(iter(self._look_at))
            del self._look_at[place]
            self._match(*place)
            if self._clock.is_over():
                return bool(self._look_at)
        return False

    def failed(self, error):
        return bool(self._look_at)

    def _match(self, vhost, kind, name):
        """Start and stop links, so that the EXCHANGE or QUEUE (``kind``) has one link per upstream."""
        links = self._federated.get(vhost, {}).get((kind, name))
        if links is None:
            return
        entity = None
        if not vhost.is_gone:
            entity = (vhost.exchanges if kind == EXCHANGE else vhost.queues).get(name)
        wanted = []
        if entity is not None and _may_be_federated(entity):
            wanted = self._upstreams_for(vhost, entity)
        for upstream, link in list(links.items()):
            if upstream not in wanted or kind == EXCHANGE and link.exchange is not entity:
                del links[upstream]
                self._end(link, wanted)
        for upstream in wanted:
            if upstream not in links:
                self._begin(links, kind, vhost, name, upstream)
            else:
                links[upstream].rights_changed()  # the setter may have changed
        if kind == QUEUE and entity is not None:
            self._watch(entity, links)
        if entity is None or KEYS.isdisjoint(entity.in_force.definition):
            del self._federated[vhost][kind, name]
            if not self._federated[vhost]:
                del self._federated[vhost]

    @staticmethod
    def _upstreams_for(vhost, entity):
        try:
            return upstreams_for(vhost, entity)
        except Exception:  # a bad stored value must not affect others
            LOG.exception("%r in vhost %r has no federation links", entity.name, vhost.name)
            return []

    def _begin(self, links, kind, vhost, name, upstream):
        # imported here: a broker without upstreams does not load the client
        from gomq_py.federation.exchange_link import ExchangeLink
        from gomq_py.federation.link import NoLink
        from gomq_py.federation.queue_link import QueueLink
        make = ExchangeLink if kind == EXCHANGE else QueueLink
        try:
            links[upstream] = link = (
                make(self._context, vhost, name, upstream) if upstream.fault is None
                else NoLink(self._context, vhost, name, upstream, kind))
            link.start()
        except Exception:  # one link must not keep others from starting
            LOG.exception("federation link of %s %r in vhost %r from upstream %r cannot start", kind, name,
                          vhost.name, upstream.name)

    def _end(self, link, wanted):
        link.stop()
        if not any(upstream.is_at_the_place_of(link.upstream) for upstream in wanted):
            link.clean_up()
        LOG.info("federation link %s has ended", link.title)
        self._broker.events.emit(REMOVED, _described, link)
        link.gone()

    @staticmethod
    def _watch(queue, links):
        """Make the queue call its links after each delivery round, so that they notice idle consumers."""
        if not links:
            queue.on_turn = None
            return

        def had_turn(queue):
            for link in links.values():
                try:
                    link.queue_had_turn(queue)
                except Exception:  # an error here would close the queue
                    LOG.exception("federation link %s", link.title)

        queue.on_turn = had_turn
        queue.wake()

    # called by links

    def _link_changed(self, link):
        self._is_changed.set()
        if link.state == link.told_status:
            return
        link.told_status = link.state
        self._broker.events.emit(STATUS, _described, link)

    def _link_ended(self, link, reason):
        # No error is final while the link is wanted.
        self._link_changed(link)
        self._hub.timers.start(
            max(AGAIN_S, link.upstream.reconnect_delay_s) * 1000, lambda: self._start_again(link))

    def _start_again(self, link):
        if self._is_started and link in self.links(link.vhost.name):
            link.start()


def _may_be_federated(entity):
    if isinstance(entity, Exchange):
        return bool(entity.name) and not entity.internal
    return (
        entity.exclusive_owner is None and not entity.is_state and PURPOSE not in entity.arguments
        and queue_type_of(entity.arguments) != STREAM
    )


def _hands_on(broker, onward, name):
    """True if the exchange named ``name`` passes all its messages on to the exchange ``onward``."""
    exchange = broker.vhosts[onward.vhost].exchanges.get(name)
    return exchange is not None and exchange.onward is onward


def _nothing(_vhost):
    """Do nothing: a new vhost has nothing to federate."""
