"""Fixtures of the clients suite: see tests/support/broker_under_test.py."""
from tests.support.broker_under_test import (  # noqa: F401
    bare_wire, broker_address, broker_url, channel, name, open_wire, own_broker, pytest_configure, pytest_runtest_setup, wire)
