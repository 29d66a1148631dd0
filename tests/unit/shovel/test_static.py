"""Static shovels: sections of the configuration read as parameters are."""
import pytest

from gomq_py.shovel.definition import Definition, DefinitionError
from gomq_py.shovel.static import values_of

SECTION = {"src-uri": "amqp://", "src-queue": "12", "dest-uri": "amqp://other", "dest-queue": "to"}


def test_text_becomes_what_the_key_may_be():
    vhost, value = values_of({
        **SECTION, "vhost": "shop", "dest-uri": "amqp://a, amqp://b", "src-prefetch-count": "7",
        "reconnect-delay": "0.5", "src-delete-after": "queue-length", "dest-predeclared": "yes",
        "src-consumer-args": '{"x-stream-offset": 5}'})

    assert vhost == "shop"
    assert value == {
        **SECTION, "dest-uri": ["amqp://a", "amqp://b"], "src-prefetch-count": 7, "reconnect-delay": 0.5,
        "src-delete-after": "queue-length", "dest-predeclared": True,
        "src-consumer-args": {"x-stream-offset": 5}}
    assert Definition(value).src_queue == "12"  # a name, whatever it looks like


def test_every_key_of_a_parameter_is_read_by_what_it_wants():
    """One that came later was not: its number stayed a text, and was refused."""
    to_hook = {key: text for key, text in SECTION.items() if key != "dest-queue"}
    _, value = values_of({**to_hook, "dest-uri": "https://hook", "dest-depth": "2", "dest-timeout": "1.5"})

    assert (value["dest-depth"], value["dest-timeout"]) == (2, 1.5)


@pytest.mark.parametrize("changes, text", [
    ({"src-consumer-args": "{"}, "src-consumer-args is an object as JSON"),
    ({"src-prefetch-count": "many"}, "src-prefetch-count is a whole number"),
    ({"src-prefetch-count": "9" * 5000}, "src-prefetch-count is a whole number"),
    ({"dest-predeclared": "maybe"}, "dest-predeclared is true or false"),
    ({"color": "red"}, "'color' is no key of a shovel"),
    ({"src-consumer-args": "[" * 100000}, "src-consumer-args is an object"),
])
def test_what_cannot_be_is_refused(changes, text):
    with pytest.raises(DefinitionError) as refused:
        values_of({**SECTION, **changes})

    assert text in str(refused.value)
