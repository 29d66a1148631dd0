"""What shovels change of messages."""
import time

from gomq_py.content.properties import Properties
from gomq_py.shovel.definition import Definition
from gomq_py.shovel.ends import edit_of

PLAIN = {"src-uri": "amqp://", "src-queue": "from", "dest-uri": "amqp://u:hush@other/v", "dest-queue": "to"}


def edited(changes, properties, type_="dynamic"):
    edit = edit_of(
        Definition({**PLAIN, **changes}), "here", "s", "shop", type_,
        lambda: ("amqp:///shop", "amqp://u:hush@other/v?password=hush"))
    return Properties.decode(edit(properties, None).encode())


def test_nothing_to_change_is_no_edit():
    assert edit_of(Definition(PLAIN), "here", "s", "shop", "dynamic", tuple) is None


def test_given_properties_replace_those_of_the_message():
    properties = edited(
        {"dest-publish-properties": {"delivery_mode": 2, "content_type": "t", "headers": {"a": 1}}},
        Properties(delivery_mode=1, message_id="m", headers={"b": 2}))

    assert (properties.delivery_mode, properties.content_type, properties.message_id) == (2, "t", "m")
    assert properties.headers == {"a": 1}


def test_forward_headers_say_where_it_has_been_the_latest_first_without_passwords():
    once = edited({"dest-add-forward-headers": True}, Properties(headers={"mine": "kept"}))
    copy = Properties.decode(once.encode())
    twice = edited({"dest-add-forward-headers": True}, copy, "static")

    assert once.headers == {"mine": "kept", "x-shovelled": [{
        "shovelled-by": "here", "shovel-type": "dynamic", "shovel-name": "s", "shovel-vhost": "shop",
        "src-uri": "amqp:///shop", "dest-uri": "amqp://other/v", "src-queue": "from", "dest-queue": "to"}]}
    assert [entry["shovel-type"] for entry in twice.headers["x-shovelled"]] == ["static", "dynamic"]
    assert "hush" not in repr(twice.headers) and "shovel-vhost" not in twice.headers["x-shovelled"][0]


def test_a_header_of_that_name_that_is_no_list_gives_way():
    properties = edited({"dest-add-forward-headers": True}, Properties(headers={"x-shovelled": "mine"}))

    assert len(properties.headers["x-shovelled"]) == 1


def test_timestamp_is_in_seconds():
    properties = edited({"dest-add-timestamp-header": True}, Properties())

    assert abs(properties.headers["x-shovelled-timestamp"] - time.time()) < 300


def test_given_headers_are_not_changed_by_what_is_added():
    """A dict of the definition is nobody's to add to."""
    changes = {"dest-publish-properties": {"headers": {}}, "dest-add-forward-headers": True}
    edit = edit_of(Definition({**PLAIN, **changes}), "h", "s", "v", "dynamic", lambda: ("amqp://", "amqp://"))

    counts = [len(edit(Properties(), None).headers["x-shovelled"]) for _ in range(3)]

    assert counts == [1, 1, 1]
