"""Fixtures of tests that need a door above what they test: those of the AMQP door's."""
from tests.unit.amqp.server.conftest import client, door, slow_disk_door  # noqa: F401
