"""What a reload applies, keeps and leaves for a restart, without a broker."""
import logging

import pytest

from gomq_py.config.settings import OPTIONS, Settings
from gomq_py.config.sources import ConfigError
from gomq_py.net.listener import BindError
from gomq_py.observability import log
from gomq_py.reload import Reloader, differences

pytestmark = pytest.mark.usefixtures("kept_logging")


class Doors:
    """Notes what it is asked for."""

    def __init__(self, error=None):
        self.error, self.applied = error, []

    def prepare(self, settings):
        if self.error:
            raise self.error
        return {"amqps": "contexts"} if settings.tls_cert else {}

    def apply(self, settings, contexts):
        self.applied.append((settings, contexts))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "broker.log"


def reloaded(old, new, path, doors=None):
    """(whether it was applied, how often the rooms were told, the lines of the log)."""
    told = []
    old.log_file = new.log_file = str(path)

    def reread():
        return new, ["a warning"]

    done = Reloader(old, reread, doors or Doors(), lambda: told.append(1)).reload()
    return done, len(told), path.read_text().splitlines()


def test_rooms_see_the_change_in_the_settings_they_hold(path):
    settings, doors = Settings(heartbeat=60), Doors()

    done, told, lines = reloaded(
        settings, Settings(heartbeat=7, tls_cert="", segment_size=65536), path, doors
    )

    assert (done, told) == (True, 1)
    assert settings.heartbeat == 7
    assert settings.segment_size == 8388608
    assert doors.applied == [(settings, {})]
    assert [line.partition(": ")[2] for line in lines] == [
        "a warning", "configuration reloaded: heartbeat: 60 -> 7",
        "these changes need a restart: segment_size in [main]"]


def test_origins_follow_the_values(path):
    settings, new = Settings(heartbeat=7), Settings()
    new.set("channel_max", 9, "gomq.ini:3")

    reloaded(settings, new, path)

    assert (settings.origin("heartbeat"), settings.origin("channel_max")) == ("default", "gomq.ini:3")


def test_sections_of_host_names_are_replaced(path):
    settings, new = Settings(tls_cert="a"), Settings(tls_cert="a")
    new.sni = {"a.example.com": {"tls_cert": "b"}}

    assert "certificates read anew" in reloaded(settings, new, path)[2][1]
    assert settings.sni == new.sni


def test_level_changes_at_once(path):
    reloaded(Settings(), Settings(log_level="error"), path)

    assert logging.getLogger(log.ROOT).level == logging.ERROR


@pytest.mark.parametrize("error", [BindError("no key"), ConfigError("gomq.ini:1: no")])
def test_mistake_changes_nothing(path, error):
    settings, doors, told = Settings(heartbeat=60, log_file=str(path)), Doors(error), []

    assert not Reloader(
        settings, lambda: (Settings(heartbeat=7, tls_cert="x"), []), doors, lambda: told.append(1)
    ).reload()

    assert (settings.heartbeat, settings.tls_cert, doors.applied, told) == (60, "", [], [])
    (line,) = path.read_text().splitlines()
    assert line.endswith(f"error reload: the old configuration stays: {error}")


@pytest.mark.parametrize("before, after, applied", [("a", "b", True), ("", "b", False), ("a", "", False)])
def test_first_and_last_certificate_need_a_restart(before, after, applied):
    """They open and close ports."""
    changed, waiting = differences(Settings(tls_cert=before), Settings(tls_cert=after))

    assert [option.key for option in (changed if applied else waiting)] == ["tls_cert"]


def test_every_option_is_either_applied_or_named(path):
    """Each alone, set to something else."""
    for option in OPTIONS:
        old, new = Settings(), Settings()
        setattr(old, option.attribute, "one thing")
        setattr(new, option.attribute, "another")
        changed, waiting = differences(old, new)
        assert (changed, waiting) == (([option], []) if option.reloadable else ([], [option]))
