"""Boot keepalives: without a thread for them the boot goes on."""
import pytest

from gomq_py.cluster import boot_keepalives
from gomq_py.cluster.boot_keepalives import BootKeepalives


def test_boot_goes_on_without_a_thread(monkeypatch, caplog):
    def start(function, arguments):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(boot_keepalives, "_start_thread", start)

    keepalives = BootKeepalives(pytest.fail, 7, 5.0, lambda: 0.0)

    assert keepalives.kept == (None, False) and "no keepalives are sent" in caplog.text
    keepalives.stop()
