"""Settings that should be alike on all nodes: what is told of them, and what differs."""
import pytest

from gomq_py.cluster import shared_settings
from gomq_py.cluster.core.records import Kept, NodeRecord
from gomq_py.cluster.shared_settings import Difference, Warner, differences, told
from gomq_py.config.settings import BY_ATTRIBUTE, Settings

ONE, TWO, THREE = "1" * 32, "2" * 32, "3" * 32


def kept(name, settings, revision=1):
    return Kept(NodeRecord(name, f"{name}:5679", settings).encode(), 1, revision)


def test_no_secret_and_nothing_of_one_machine_is_told():
    options = [BY_ATTRIBUTE[attribute] for attribute in shared_settings.SHARED]

    assert [one.attribute for one in options if one.kind.secret or one.kind.name in ("path", "folder")] == []


def test_what_is_told_comes_back_from_the_record():
    settings = told(Settings(min_isr=2, heartbeat=20))

    record = NodeRecord.decode(NodeRecord("one", "one:5679", settings).encode())

    assert (record.settings["[clustering] min_isr"], record.settings["[amqp] heartbeat"]) == ("2", "20")
    assert record.settings == settings


def test_long_or_strange_value_is_told_as_its_digest():
    settings = told(Settings(oauth_issuer="x" * 1000, oauth_audience="a\nb"))

    assert settings["[oauth] issuer"].startswith("digest ")
    assert settings["[oauth] audience"].startswith("digest ")
    assert told(Settings(oauth_issuer="x" * 1000))["[oauth] issuer"] == settings["[oauth] issuer"]


def test_difference_names_setting_and_both_values():
    nodes = {
        ONE: kept("one", {"[main] sync": "false"}), TWO: kept("two", {"[main] sync": "false"}),
        THREE: Kept(b"rubbish", 1, 1)}

    assert differences(ONE, {"[main] sync": "true"}, nodes) == [
        Difference(TWO, "two", "[main] sync", "true", "false")]


@pytest.mark.parametrize("settings", [{}, {"[main] unknown": "1"}, {"[main] sync": "true"}])
def test_equal_unknown_and_untold_settings_do_not_differ(settings):
    assert differences(ONE, {"[main] sync": "true"}, {TWO: kept("two", settings)}) == []


def test_difference_is_warned_of_again_once_it_was_gone(caplog):
    warner = Warner(ONE, {"[main] sync": "true"})

    for revision, value in enumerate(("false", "false", "true", "false"), 1):
        warner.look({TWO: kept("two", {"[main] sync": value}, revision)})
        warner.look({TWO: kept("two", {"[main] sync": value}, revision)})

    assert caplog.text.count("settings differ") == 2
