"""Edits: the changes that a shovel makes to the properties of each message.

Links call them for every message of a shovel that has any; other shovels copy properties byte for byte.
"""
import time
from collections.abc import Callable
from typing import Any

from gomq_py.content.fields import Int64
from gomq_py.shovel.definition import without_login

# RabbitMQ's names.
FORWARDED, FORWARDED_AT = "x-shovelled", "x-shovelled-timestamp"


def edit_of(definition, shovelled_by, name, vhost, type_, uris):
    """A function(properties, delivery) that returns the Properties to publish with, or None if the shovel
    changes none.

    ``uris()``: the URIs of both ends in use.
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
    """dest-publish-properties: fixed properties that replace the message's."""

    def __init__(self, values):
        self._values = values

    def __call__(self, properties):
        for name, value in self._values.items():
            setattr(properties, name, dict(value) if isinstance(value, dict) else value)


class _Forwarded:
    """dest-add-forward-headers: the list of shovels that the message passed, latest first, as in RabbitMQ."""

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
    """dest-add-timestamp-header: when the message was moved, in seconds."""
    properties.headers = {**(properties.headers or {}), FORWARDED_AT: Int64(int(time.time()))}
