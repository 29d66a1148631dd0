"""What a copy of a message keeps of its properties."""

from types import SimpleNamespace

import pytest

from gomq_py.content.properties import Properties
from gomq_py.dispatcher.copies import properties_of


@pytest.mark.parametrize(
    "reply_to, kept",
    [("amq.rabbitmq.reply-to", None), ("amq.rabbitmq.reply-to.a", "amq.rabbitmq.reply-to.a"), ("q", "q")],
)
def test_a_copy_asks_for_no_answer_over_its_own_channel(reply_to, kept):
    """The management API takes such messages; the broker closes the channel that publishes one."""
    came = Properties(reply_to=reply_to, priority=3, expiration="10", headers={"x-delay": 5, "tenant": 7})

    made = properties_of(SimpleNamespace(raw_properties=came.encode()), {"x-task-attempt": 2}, bare=False)

    assert (made.reply_to, made.priority, made.expiration) == (kept, 3, None)
    assert made.headers == {"tenant": 7, "x-task-attempt": 2}
