"""The names of the package."""

import subprocess
import sys

import gomq_py.dispatcher
from tests.support.waiting import in_time


def test_every_name_is_there():
    assert [name for name in gomq_py.dispatcher.__all__ if getattr(gomq_py.dispatcher, name) is None] == []


def test_senders_and_workers_load_no_gevent():
    code = (
        "import sys; from gomq_py.dispatcher import Dispatcher, Server, Worker; "
        "sys.exit('gevent' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], timeout=in_time(60)).returncode == 0
