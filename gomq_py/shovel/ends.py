"""Ends: makes the link of a shovel, with functions that declare queues at both ends and edit messages. Called
by the supervisor. Only this module imports links.link, so a broker without shovels does not load it.
"""
import time
from collections.abc import Callable
from typing import Any

from gomq_py.broker.features.stream_offset import OFFSET, NEXT
from gomq_py.client.backoff import Backoff
from gomq_py.client.errors import ChannelClosed
from gomq_py.content.fields import Int64
from gomq_py.links.ends import NO_ACK, SourceEnd, TargetEnd
from gomq_py.links.link import FINAL_CODES, Link
from gomq_py.links.uris import without_login
from gomq_py.shovel.definition import is_local, with_vhost

NOT_FOUND = 404
# RabbitMQ's names.
FORWARDED, FORWARDED_AT = "x-shovelled", "x-shovelled-timestamp"
# Longest back-off. RabbitMQ's shovels wait a constant time; ours wait longer each time, like LavinMQ's.
LONGEST_WAIT_S = 300.0


class Opener:
    """A callable that makes the links of shovels. ``connector``: the broker's links.local.Connector.
    ``cluster_name()``: returns this broker's name, for the header x-shovelled.
    """

    def __init__(self, hub, connector, cluster_name):
        self._hub = hub
        self._connector = connector
        self._cluster_name = cluster_name

    def __call__(self, shovel, user_of, begin_at, on_change, on_end):
        """Return a shovel's new Link, not started. Raises ValueError. Arguments: see supervisor.Shovels."""
        definition, vhost = shovel.definition, shovel.vhost.name
        account = shovel.by, vhost
        title = f"Shovel {shovel.name} in vhost {vhost}"

        def connector(which):
            def connect(uri):
                user = user_of(is_needed=is_local(uri))
                return self._connector.connect(
                    uri, user, name=f"{title}, {which}", vhost=vhost, account=account)

            return connect

        delay_s = definition.reconnect_delay
        return Link(
            self._hub, title, source_of(definition, vhost, begin_at if shovel.is_of_stream else None,
                                        shovel.is_of_stream),
            self._target(shovel, lambda: link_uris(shovel)),
            ack_mode=definition.ack_mode,
            backoff=Backoff(delay_s, max(delay_s, LONGEST_WAIT_S), retries=None if delay_s else 0),
            connect=connector("source"), connect_target=connector("destination"),
            delete_after=definition.src_delete_after, refusals=definition.dest_refusal_limit,
            on_change=on_change, on_end=on_end, account=account,
            # objects that the shovel does not declare may be made later, or again
            ends_with=FINAL_CODES - (
                {NOT_FOUND} if definition.is_predeclared or shovel.has_run else set()))

    def _target(self, shovel, uris):
        definition, vhost = shovel.definition, shovel.vhost.name
        edit = edit_of(definition, self._cluster_name(), shovel.name, vhost, shovel.type, uris)
        if definition.is_webhook:
            from gomq_py.links.webhook import Webhook
            return Webhook(
                definition.dest_uri, shovel.name, self._connector, secret=definition.dest_secret or "",
                timeout_s=definition.dest_timeout, edit=edit, tls=definition.dest_tls,
                account=(shovel.by, vhost))
        exchange, routing_key = definition.dest_exchange, definition.dest_exchange_key
        if definition.dest_queue is not None:
            exchange, routing_key = "", definition.dest_queue
        return TargetEnd(
            with_vhosts(definition.dest_uri, vhost), exchange, routing_key,
            prepare=_prepare_target(definition), edit=edit)


def with_vhosts(uris, vhost):
    return [with_vhost(uri, vhost) for uri in uris]


def link_uris(shovel):
    """Return (source URI, destination URI) that the link uses or used last, else the definition's first."""
    status = shovel.link.status if shovel.link is not None else None
    return (
        (status.source_uri if status is not None else None) or shovel.definition.src_uri[0],
        (status.target_uri if status is not None else None) or shovel.definition.dest_uri[0],
    )


def source_of(definition, vhost, begin_at, is_of_stream):
    """Return the SourceEnd of a shovel's definition. ``begin_at``: stream offset to begin at, or None."""
    arguments = dict(definition.src_consumer_args)
    # a remote queue's kind is unknown; the first delivery of a stream shows it
    may_be_of_stream = is_of_stream or definition.src_queue is not None and not all(
        map(is_local, definition.src_uri))
    if is_of_stream:
        arguments.setdefault(OFFSET, NEXT)
        if begin_at is not None:
            arguments[OFFSET] = begin_at
    return SourceEnd(
        with_vhosts(definition.src_uri, vhost), definition.src_queue or "",
        prepare=_prepare_source(definition), prefetch=definition.src_prefetch_count,
        consumer_arguments=arguments, no_ack=definition.ack_mode == NO_ACK,
        offset_argument=OFFSET if may_be_of_stream else "")


def _prepare_source(definition):
    """Return a function(channel) that declares the source queue and returns its name. The queue is the
    definition's queue, or an exclusive queue bound to the definition's exchange.
    """
    def prepare(channel):
        if definition.src_exchange is not None:
            if not definition.src_predeclared:
                channel.exchange_declare(definition.src_exchange, passive=True)
            queue = channel.queue_declare("", exclusive=True).queue
            channel.queue_bind(queue, definition.src_exchange, definition.src_exchange_key)
            return queue
        declare_queue(
            channel, definition.src_queue, definition.src_queue_args, definition.src_predeclared)
        return definition.src_queue

    return prepare


def _prepare_target(definition):
    if definition.dest_queue is not None:
        return lambda channel: declare_queue(
            channel, definition.dest_queue, definition.dest_queue_args, definition.dest_predeclared)
    if definition.dest_exchange:
        return lambda channel: channel.exchange_declare(definition.dest_exchange, passive=True)
    return None


def declare_queue(channel, name, arguments, is_predeclared):
    """Declare a durable queue if it is missing. An existing queue is not changed. ``is_predeclared``: only
    check that the queue exists. May switch greenlets. Raises ChannelClosed if it is missing or cannot be
    declared.
    """
    if is_predeclared:
        channel.queue_declare(name, passive=True)
        return
    looking = channel.connection.channel()
    try:
        looking.queue_declare(name, passive=True)
    except ChannelClosed as error:
        if error.reply_code != NOT_FOUND:
            raise
        channel.queue_declare(name, durable=True, arguments=arguments)
    else:
        looking.close()


def edit_of(definition, shovelled_by, name, vhost, type_, uris):
    """Return a function(properties, delivery) that changes and returns a message's Properties; None if the
    definition requires no change. ``shovelled_by``: this broker's name. ``uris()`` returns the present
    (source URI, destination URI).
    """
    steps: list[Callable[[Any], None]] = []
    if definition.dest_publish_properties:
        steps.append(_Given(definition.dest_publish_properties))
    if definition.dest_add_forward_headers:
        steps.append(_Forwarded(definition, shovelled_by, name, vhost, type_, uris))
    if definition.dest_add_timestamp_header:
        steps.append(_stamp)
    if not steps:
        return None

    def edit(properties, _delivery):
        for step in steps:
            step(properties)
        return properties

    return edit


class _Given:
    """Implements dest-publish-properties: sets properties of a message to fixed values."""

    def __init__(self, values):
        self._values = values

    def __call__(self, properties):
        for name, value in self._values.items():
            setattr(properties, name, dict(value) if isinstance(value, dict) else value)


class _Forwarded:
    """Implements dest-add-forward-headers: prepends an entry about this shovel to the header x-shovelled,
    which lists the shovels that the message has passed, as in RabbitMQ.
    """

    def __init__(self, definition, shovelled_by, name, vhost, type_, uris):
        self._told = {
            "shovelled-by": shovelled_by, "shovel-type": type_, "shovel-name": name,
            **({"shovel-vhost": vhost} if type_ == "dynamic" else {}),
        }
        self._ends = {
            key: value for key, value in (
                ("src-queue", definition.src_queue), ("src-exchange", definition.src_exchange),
                ("src-exchange-key", definition.src_exchange_key if definition.src_exchange else None),
                ("dest-queue", definition.dest_queue), ("dest-exchange", definition.dest_exchange),
                ("dest-exchange-key", definition.dest_exchange_key),
            ) if value is not None
        }
        self._uris = uris

    def __call__(self, properties):
        source, destination = self._uris()
        headers = dict(properties.headers or {})
        before = headers.pop(FORWARDED, None)
        here = {
            **self._told, "src-uri": without_login(source), "dest-uri": without_login(destination),
            **self._ends,
        }
        properties.headers = {FORWARDED: [here, *(before if isinstance(before, list) else ())], **headers}


def _stamp(properties):
    """Implement dest-add-timestamp-header: add a header with the current Unix time in seconds."""
    properties.headers = {**(properties.headers or {}), FORWARDED_AT: Int64(int(time.time()))}
