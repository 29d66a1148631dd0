"""Edits: what a shovel changes of the properties of each message.

Used by links for every message of a shovel that has any of it; a shovel without hands octets on as they came.
"""
import time
from collections.abc import Callable
from typing import Any

from gomq_py.content.fields import Int64
from gomq_py.shovel.definition import without_login

# RabbitMQ's.
FORWARDED, FORWARDED_AT = "x-shovelled", "x-shovelled-timestamp"


def edit_of(definition, shovelled_by, name, vhost, type_, uris):
    """A function(properties, delivery) that returns the Properties to publish with; None where the shovel
    changes none.

    ``uris()``: the URIs of both ends as they are in use.
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
    """dest-publish-properties: of each message, whatever it came with."""

    def __init__(self, values):
        self._values = values

    def __call__(self, properties):
        for name, value in self._values.items():
            setattr(properties, name, dict(value) if isinstance(value, dict) else value)


class _Forwarded:
    """dest-add-forward-headers: where the message has been, the latest shovel first, as RabbitMQ says it."""

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
    """dest-add-timestamp-header: when the message went through, in seconds."""
    properties.headers = {**(properties.headers or {}), FORWARDED_AT: Int64(int(time.time()))}
