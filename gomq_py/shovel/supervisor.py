"""Supervisor: creates, starts and stops the shovels of one broker, as parameters and configuration define
them.

Made by the node. The supervisor starts links once the listeners are open, stops them before the listeners
close, and reports their state to operators and as events. Only ``close`` switches greenlets.
"""
import time

from gevent.event import Event

from gomq_py.broker.features.arguments import QUEUE_TYPE, STREAM, queue_type_of
from gomq_py.broker.features.stream_offset import OFFSET
from gomq_py.broker.names import NAME_OCTETS_MAX, fits_short_string
from gomq_py.broker.policies.parameters import OPERATOR, Component
from gomq_py.hub.scheduler import Job, SliceClock
from gomq_py.links.uris import AMQP, DESTINATIONS
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.shovel.definition import DefinitionError, is_local, values_of, vhost_of
from gomq_py.shovel.rights import Rights
from gomq_py.shovel.shovel import (
    DYNAMIC, PAUSED, RUNNING, STATIC, STOPPED, TERMINATED, WAITING, NoVHost, Shovel, removed_event,
    status_event,
)

LOG = logger("shovel")
# Rate-limited: a thousand shovels from one broker that is down are one fault.
QUIET = QuietLog(LOG, most=50)
COMPONENT = "shovel"
# Sections of notes (broker.policies.parameters.Notes).
PAUSE_NOTES, OFFSET_NOTES = "shovel-paused", "shovel-offset"
# How often stream positions are saved; a crash repeats at most this much.
OFFSETS_INTERVAL_S = 5.0
# Time for messages in flight to be settled at a stop; links themselves wait no longer.
END_S = 6.0
# Shovels that a booting broker starts without slices; some 10 ms.
STARTED_AT_ONCE = 100


class Shovels(Component):
    """Keeps the shovels of a broker, and handles the parameters that define them.

    ``open_link(shovel, user_of, begin_at, on_change, on_end)`` makes a Link without starting it.
    ``user_of(is_needed)`` returns the shovel's User, see Rights.user_of. ``begin_at``: stream offset, or
    None. ``check_uris(list, schemes, tls, user)`` raises ValueError for URIs that could never be used.
    """

    def __init__(self, broker, hub, open_link, check_uris=lambda value, schemes, tls, user: None):
        self._broker = broker
        self._hub = hub
        self._open_link = open_link
        self._check_uri_list = check_uris
        self._rights = Rights(broker)
        self._shovels = {}  # (name of vhost, name): Shovel
        # {the same key: stopping link that settles messages in flight}; the next link starts after it
        self._ending = {}
        self._is_ended = Event()  # set when a stopping link has ended
        self._is_started = False
        self._offsets_timer = None

    # called by the node

    def take_over(self, sections):
        """Create the shovels of the configuration and of the parameters, without starting them. ``sections``:
        {name: {key: text}} from the configuration. Raises DefinitionError for an invalid section.
        """
        for name, section in sections.items():
            try:
                vhost_name, value = values_of(section)
                self._broker.tables.check_json("the objects in it", value)
                self._check_uris(Shovel(None, name, STATIC, value, None).definition, OPERATOR)
            except ValueError as error:
                raise DefinitionError(f"section [shovel:{name}]: {error}") from None
            self._keep_static(name, vhost_name, value)
        self._broker.parameters.register(COMPONENT, self, self._broker.vhosts.values())
        for vhost in self._broker.vhosts.values():
            for component, name in vhost.waiting:
                if component == COMPONENT and (vhost.name, name) not in self._shovels:
                    value = vhost.parameters[COMPONENT, name]
                    self._keep(Shovel(vhost, name, DYNAMIC, value, None, is_waiting=True))
        self._broker.events.subscribe(self._event, ("vhost.created", "vhost.deleted"))
        self._broker.users.rights_watchers.append(self._rights_changed)

    def start(self):
        """Start all shovels. If they are more than STARTED_AT_ONCE, a Job starts the rest in slices."""
        self._is_started = True
        shovels = list(self._shovels.values())
        for shovel in shovels:
            shovel.has_run = True
        for shovel in shovels[:STARTED_AT_ONCE]:
            self._start(shovel)
        if shovels[STARTED_AT_ONCE:]:
            self._hub.scheduler.start(Starting(self, shovels[STARTED_AT_ONCE:]))

    def start_one(self, shovel):
        """Start this shovel, unless it was removed, has started, or its previous link is still ending."""
        if self._is_started and self._shovels.get(shovel.key) is shovel and shovel.link is None and (
                shovel.key not in self._ending):
            self._start(shovel)

    def close(self):
        """Stop all shovels, and wait up to END_S for messages in flight. May switch greenlets."""
        self._is_started = False
        self._broker.events.unsubscribe(self._event)
        if self._offsets_timer is not None:
            self._offsets_timer.kill(block=False)
        for shovel in list(self._shovels.values()):
            self._stop_link(shovel)
        until_s = time.monotonic() + END_S
        while self._ending and (rest_s := until_s - time.monotonic()) > 0:
            self._is_ended.clear()
            self._is_ended.wait(rest_s)

    # called by doors

    def all(self, vhost_name=None):
        """Return a list of the Shovels of one vhost, or of all vhosts, sorted by vhost and name."""
        return [
            shovel for key, shovel in sorted(self._shovels.items()) if vhost_name in (None, key[0])]

    def missing_vhosts(self):
        """Return a sorted list of virtual hosts that configured shovels name and that do not exist."""
        return sorted({shovel.vhost.name for shovel in self._shovels.values() if shovel.vhost.is_gone})

    def find(self, vhost_name, name):
        return self._shovels.get((vhost_name, name))

    def described(self, shovel):
        """Return a dict about a shovel for operators. ``lag``: ready messages at its source, or None."""
        queue = self._own_source(shovel)
        lag = queue.ready_count if queue is not None else getattr(shovel.link, "lag", None)
        return {**shovel.described(), "lag": lag}

    def pause(self, shovel):
        """Pause a shovel until ``resume``. Returns False if it was paused before. Raises OSError."""
        if shovel.is_paused:
            return False
        self._broker.notes.set(shovel.vhost, PAUSE_NOTES, shovel.name, True)
        shovel.is_paused = True
        self._stop_link(shovel)
        self._tell(shovel)
        return True

    def resume(self, shovel, by):
        """End a pause and start the shovel. Returns False if not paused. Raises OSError, ValueError."""
        if not shovel.is_paused:
            return False
        self._broker.notes.clear(shovel.vhost, PAUSE_NOTES, shovel.name)
        shovel.is_paused = False
        self.restart(shovel, by)
        return True

    def restart(self, shovel, by):
        """Close the shovel's connections, if any, and connect again, as the present definition says.

        A shovel in the state WAITING takes effect as if user ``by`` had set it now. A paused shovel stays
        paused. Raises OSError, ValueError.
        """
        if shovel.is_waiting:
            value = shovel.vhost.parameters[COMPONENT, shovel.name]
            self._broker.parameters.set(shovel.vhost, COMPONENT, shovel.name, value, by)
            return
        self._stop_link(shovel)
        self._start(shovel)

    def delete(self, shovel):
        """Delete a shovel and its parameter. Raises OSError; ValueError if it is in the configuration."""
        if shovel.why_kept is not None:
            raise DefinitionError(shovel.why_kept)
        self._broker.parameters.clear(shovel.vhost, COMPONENT, shovel.name)

    # called by parameters

    def check_set_by(self, vhost, name, value, by):
        """Raise ValueError if ``value`` is not a valid shovel, or user ``by`` lacks the rights for it."""
        if not fits_short_string(name):
            raise DefinitionError(f"its name has more than {NAME_OCTETS_MAX} bytes")
        shovel = Shovel(vhost, name, DYNAMIC, value, by)
        if shovel.fault is not None:
            raise DefinitionError(shovel.fault)
        there = self._shovels.get((vhost.name, name))
        if there is not None and there.type == STATIC:
            raise DefinitionError(f"shovel '{name}' in vhost '{vhost.name}' is in the configuration already")
        self._check_uris(shovel.definition, by)
        self._rights.check(shovel.definition, vhost.name, by)

    def fault_of(self, vhost, name, value):
        """Return why the stored value is not a valid shovel, as text; None if it is valid."""
        shovel = self._shovels.get((vhost.name, name))
        return shovel.fault if shovel is not None and shovel.definition is None else None

    def changed(self, vhost, name, value):
        """Replace the shovel of this name, because its parameter was set."""
        if self._is_static(vhost, name):
            LOG.error(
                "shovel %r in vhost %r is in the configuration too, which counts", name, vhost.name)
            return
        self._drop(vhost.name, name)
        shovel = Shovel(vhost, name, DYNAMIC, value, vhost.set_by.get((COMPONENT, name)))
        self._keep(shovel)
        if self._is_started:
            self._start(shovel)

    def cleared(self, vhost, name):
        """Remove the shovel of this name, because its parameter was deleted."""
        if self._is_static(vhost, name):
            return
        shovel = self._drop(vhost.name, name)
        if shovel is not None:
            self._forget_notes(shovel)
            self._tell_removed(shovel)

    def _is_static(self, vhost, name):
        there = self._shovels.get((vhost.name, name))
        return there is not None and there.type == STATIC

    def _check_uris(self, definition, by):
        user = self._rights.user_of(by, is_needed=False)
        for key, values, schemes, tls in (
            ("src-uri", definition.src_uri, AMQP, None),
            ("dest-uri", definition.dest_uri, DESTINATIONS, definition.dest_tls),
        ):
            try:
                self._check_uri_list(list(values), schemes, tls, user)
            except ValueError as error:
                raise DefinitionError(f"{key}: {error}") from None

    # events from other parts

    def _event(self, key, subjects):
        if key == "vhost.deleted":
            for shovel in self.all(subjects[0].name):
                if shovel.vhost is subjects[0]:
                    self._drop(*shovel.key)
                    if shovel.type == STATIC:
                        self._begin_static(shovel)
                    else:
                        self._tell_removed(shovel)
        elif key == "vhost.created":
            for shovel in self.all(subjects[0].name):
                self._drop(*shovel.key)
                self._begin_static(shovel)

    def _rights_changed(self, user):
        """Stop shovels that are not allowed any more, and restart shovels that are allowed again."""
        if not self._is_started:
            return
        for shovel in list(self._shovels.values()):
            if shovel.by != user.name or shovel.definition is None:
                continue
            shovel.by = shovel.vhost.set_by.get((COMPONENT, shovel.name))  # None after the user was deleted
            refused = self._refusal(shovel)
            if refused is not None and shovel.fault is None:
                self._stop_link(shovel)
                self._fail(shovel, refused)
            elif refused is None and (shovel.fault is not None or self._rights.is_less(shovel)):
                self._stop_link(shovel)
                self._start(shovel)

    # a single shovel

    def _keep_static(self, name, vhost_name, value):
        vhost = self._broker.vhosts.get(vhost_name)
        if vhost is None:
            LOG.error("shovel %r of the configuration waits: there is no virtual host %r", name, vhost_name)
            vhost = NoVHost(vhost_name)
        shovel = Shovel(vhost, name, STATIC, value, OPERATOR)
        self._keep(shovel)
        return shovel

    def _begin_static(self, before):
        """Replace a shovel of the configuration, because its virtual host was created or deleted."""
        shovel = self._keep_static(before.name, before.vhost.name, before.value)
        if self._is_started:
            self._start(shovel)

    def _keep(self, shovel):
        shovel.is_paused = bool(shovel.vhost.notes.get((PAUSE_NOTES, shovel.name)))
        self._shovels[shovel.key] = shovel

    def _drop(self, vhost_name, name):
        shovel = self._shovels.pop((vhost_name, name), None)
        if shovel is not None:
            self._stop_link(shovel)
        return shovel

    def _forget_notes(self, shovel):
        try:
            self._broker.notes.clear(shovel.vhost, PAUSE_NOTES, shovel.name)
            self._broker.notes.clear(shovel.vhost, OFFSET_NOTES, shovel.name)
        except OSError as error:  # the note is gone either way
            LOG.error("shovel %r in vhost %r: %s", shovel.name, shovel.vhost.name, error)

    def _start(self, shovel):
        if not self._is_started or shovel.is_paused or shovel.is_waiting or shovel.definition is None:
            self._tell(shovel)
            return
        shovel.fault = self._refusal(shovel)
        if shovel.fault is not None:
            self._fail(shovel, shovel.fault)
            return
        if shovel.key in self._ending:
            shovel.is_about_to_start = True
            self._tell(shovel)
            return
        shovel.is_about_to_start = False
        shovel.is_of_stream = self._is_of_stream(shovel)
        shovel.is_administrators = self._rights.is_administrators(shovel)

        def on_change(link):
            if shovel.link is link:
                shovel.has_run = shovel.has_run or shovel.state == RUNNING
                if link.stream_offset is not None and not shovel.is_of_stream:
                    shovel.is_of_stream = True  # a delivery shows that the remote source is a stream
                    self._watch_offset(shovel)
                self._tell(shovel)
            elif link.has_ended:
                self._has_stopped(shovel, link)

        def on_end(link, reason):
            if shovel.link is link:
                self._ended(shovel, reason)

        def user_of(is_needed=True):
            return self._rights.user_of(shovel.by, is_needed)

        try:
            begin_at = self._offset_to_begin_at(shovel)
            shovel.link = self._open_link(shovel, user_of, begin_at, on_change, on_end)
            shovel.link.start()
        except ValueError as error:
            self._fail(shovel, str(error))
            return
        except Exception as error:  # one shovel must not keep others, or a broker, from starting
            LOG.exception("shovel %r in vhost %r cannot start: a fault of ours", *reversed(shovel.key))
            self._fail(shovel, f"a fault of ours: {type(error).__name__}")
            return
        self._watch_offset(shovel)
        self._tell(shovel)

    def _refusal(self, shovel):
        if shovel.vhost.is_gone:
            return f"there is no virtual host '{shovel.vhost.name}' in this broker"
        try:
            self._rights.check(shovel.definition, shovel.vhost.name, shovel.by)
        except DefinitionError as error:
            return str(error)
        return None

    def _fail(self, shovel, why):
        shovel.fault = why
        self._tell(shovel)

    def _stop_link(self, shovel):
        shovel.is_about_to_start = False
        link, shovel.link = shovel.link, None
        if link is None:
            return
        if not link.has_ended:
            self._ending[shovel.key] = link
        link.stop()
        if link.has_ended:
            self._has_stopped(shovel, link)

    def _has_stopped(self, shovel, link):
        """Save the stream offset of a ``link`` that has ended, and start the shovel's next link, if any."""
        self._is_ended.set()
        if self._ending.get(shovel.key) is link:
            del self._ending[shovel.key]
        there = self._shovels.get(shovel.key)
        if there is not None and _is_same_stream(there, shovel):
            self._keep_offset(shovel, link)
        if there is not None and there.is_about_to_start:
            self._start(there)

    def _ended(self, shovel, reason):
        self._tell(shovel)
        is_done = reason == TERMINATED and shovel.definition.src_delete_after is not None
        if is_done and shovel.type == DYNAMIC and self._shovels.get(shovel.key) is shovel:
            LOG.info("shovel %r in vhost %r has moved what it should", shovel.name, shovel.vhost.name)
            try:
                self._broker.parameters.clear(shovel.vhost, COMPONENT, shovel.name)
            except OSError as error:
                LOG.error("shovel %r in vhost %r stays: %s", shovel.name, shovel.vhost.name, error)

    # reports

    def _tell(self, shovel):
        state = shovel.state
        if (state, shovel.error) == shovel.told:
            return
        (before, _), shovel.told = shovel.told, (state, shovel.error)
        if state != before:
            shovel.changed()
        if before is None and state in (PAUSED, WAITING, STOPPED):
            return
        if shovel.fault is not None and state != WAITING:
            QUIET.warning(
                shovel.key, "shovel %r in vhost %r: %s", shovel.name, shovel.vhost.name, shovel.error)
        elif state != before:  # the link itself logs its errors
            QUIET.info(
                (shovel.key, state), "shovel %r in vhost %r is %s", shovel.name, shovel.vhost.name, state)
        self._broker.events.emit("shovel.worker.status", status_event, shovel)

    def _tell_removed(self, shovel):
        LOG.info("shovel %r in vhost %r is gone", shovel.name, shovel.vhost.name)
        self._broker.events.emit("shovel.worker.removed", removed_event, shovel)

    def _own_source(self, shovel):
        """Return the shovel's source Queue, if it is in this broker; otherwise None."""
        definition = shovel.definition
        if definition is None or definition.src_queue is None or not is_local(definition.src_uri[0]):
            return None
        vhost = self._broker.vhosts.get(vhost_of(definition.src_uri[0], shovel.vhost.name))
        return vhost.queues.get(definition.src_queue) if vhost is not None else None

    # streams

    def _watch_offset(self, shovel):
        if shovel.is_of_stream and self._offsets_timer is None:
            self._offsets_timer = self._hub.call_later(OFFSETS_INTERVAL_S, self._keep_offsets)

    def _keep_offsets(self):
        self._offsets_timer = None
        for shovel in list(self._shovels.values()):
            if shovel.link is not None:
                self._keep_offset(shovel, shovel.link)
                self._watch_offset(shovel)

    def _keep_offset(self, shovel, link):
        """Save the stream offset at which the shovel continues after a restart."""
        offset = link.stream_offset if shovel.is_of_stream else None
        if offset is None:
            return
        note = {"of": _stream_of(shovel.definition), "next": offset + 1}
        try:
            self._broker.notes.set(shovel.vhost, OFFSET_NOTES, shovel.name, note)
        except OSError as error:
            QUIET.error(
                (shovel.key, "offset"), "shovel %r in vhost %r: where it is in its stream is not kept: %s",
                shovel.name, shovel.vhost.name, error)

    def _offset_to_begin_at(self, shovel):
        """Return the saved offset in the shovel's stream, or None."""
        if not shovel.is_of_stream:
            return None
        note = shovel.vhost.notes.get((OFFSET_NOTES, shovel.name))
        if not isinstance(note, dict) or note.get("of") != _stream_of(shovel.definition):
            return None
        offset = note.get("next")
        return offset if isinstance(offset, int) and not isinstance(offset, bool) else None

    def _is_of_stream(self, shovel):
        """True if the definition, the local queue or a saved offset says that the source is a stream."""
        definition = shovel.definition
        if definition.src_queue is None:
            return False
        queue = self._own_source(shovel)
        note = shovel.vhost.notes.get((OFFSET_NOTES, shovel.name))
        if queue is None and isinstance(note, dict) and note.get("of") == _stream_of(definition):
            return True
        return (
            OFFSET in definition.src_consumer_args
            or STREAM in (definition.src_queue_args.get(QUEUE_TYPE), queue and queue_type_of(queue.arguments))
        )


class Starting(Job):
    """Starts the shovels of a booting broker in slices, if there are more than STARTED_AT_ONCE."""

    name = "starting shovels"

    def __init__(self, owner, shovels):
        super().__init__()
        self._owner = owner
        self._shovels = shovels[::-1]
        self._clock = SliceClock()

    def step(self):
        self._clock.begin()
        while self._shovels:
            self._owner.start_one(self._shovels.pop())
            if self._clock.is_over():
                break
        return bool(self._shovels)

    def failed(self, error):
        return bool(self._shovels)


def _stream_of(definition):
    """Return a list of texts, without passwords, that identifies the source queue of a definition."""
    return [uri.rpartition("@")[2] for uri in definition.src_uri] + [definition.src_queue]


def _is_same_stream(one, other):
    return one is other or None not in (one.definition, other.definition) and (
        _stream_of(one.definition) == _stream_of(other.definition))
