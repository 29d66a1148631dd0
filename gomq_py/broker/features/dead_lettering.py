"""Dead-lettering: names a queue's dead letter exchange and key. Applied by broker.transfer.dead_letters."""
from gomq_py.broker.features import checks, policy_checks
from gomq_py.broker.features.feature import NO_STREAM, Feature, Flag
from gomq_py.broker.features.merging import first_text
from gomq_py.broker.names import NAME_OCTETS_MAX, fits_short_string

EXCHANGE_ARGUMENT = "x-dead-letter-exchange"
# The header that lists the deaths of a message, the latest first. Written by broker.transfer.dead_letters.
DEATHS = "x-death"


def _routing_key(value, arguments):
    checks.text(value, arguments)
    if EXCHANGE_ARGUMENT not in arguments:
        raise checks.WrongValue("routing_key_but_no_dlx_defined")
    if not fits_short_string(value):
        raise checks.WrongValue(f'"expected a routing key of at most {NAME_OCTETS_MAX} bytes"')


ROWS = (
    Feature(
        argument=EXCHANGE_ARGUMENT, place=3, kinds=NO_STREAM, check=checks.text,
        policy="dead-letter-exchange", hands_on_to="exchange", check_policy=policy_checks.text,
        word="dead letter exchange name",
        setting="dead_letter_exchange", merge=first_text(),
        flag=Flag(name="--dead-letter-exchange", kind=str, help="Exchange for messages that die."),
        value="`dlx`: name; empty: the default exchange",
        default="Messages that die are dropped.",
        others="RabbitMQ: waits for the copy in quorum queues with `at-least-once`.",
        effect="Messages that die in the queue go to this exchange: rejected, expired, dropped "
        "from a full queue or returned too often.",
    ),
    Feature(
        argument="x-dead-letter-routing-key", place=4, kinds=NO_STREAM, check=_routing_key,
        policy="dead-letter-routing-key", hands_on_to="", check_policy=policy_checks.routing_key,
        word="dead letter routing key",
        setting="dead_letter_routing_key", merge=first_text(),
        flag=Flag(name="--dead-letter-routing-key", kind=str, help="Their routing key."),
        value="`orders.dead`: text, to 255 bytes",
        default="The message's own key.",
        others="Alike.",
        effect="Routing key of the messages that die. It needs a dead letter exchange.",
    ),
    # Without effect: dead letters wait for the disk in every case.
    Feature(
        argument="x-dead-letter-strategy", place=5, kinds=NO_STREAM,
        check=checks.one_of("invalid_dlx_strategy", "at-most-once", "at-least-once"),
        policy="dead-letter-strategy", check_policy=policy_checks.anything,
        effect="None: a dead letter leaves its queue when its copies are on the disk, in every case.",
    ),
)
