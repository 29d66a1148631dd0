"""Stream retention: sets how long a stream keeps messages, and the size of its segment files.

Applied by broker.queues.stream_queue and the stream's store.
"""
from gomq_py.broker.features import checks, policy_checks
from gomq_py.broker.features.checks import milliseconds_of_age
from gomq_py.broker.features.feature import STREAM_ONLY, Feature
from gomq_py.broker.features.merging import smallest

SEGMENT_BYTES = "x-stream-max-segment-size-bytes"


def _age_ms(value):
    try:
        return milliseconds_of_age(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _shortest_age(feature, arguments, policy):
    ages = [_age_ms(value) for value in (arguments.get(feature.argument), policy.get(feature.policy))]
    return min((age for age in ages if age is not None), default=None)


def _filter_size(value, arguments):
    checks.integer(value, arguments)
    if not 16 <= value <= 255:
        raise checks.WrongValue(f"{{value_out_of_range,{value}}}")


ROWS = (
    Feature(
        argument="x-max-age", place=17, kinds=STREAM_ONLY, check=checks.age,
        policy="max-age", check_policy=policy_checks.age, word="max age",
        setting="max_age_ms", merge=_shortest_age, by_queue=False,
        value="`7D`: a number above 0 and `Y`, `M`, `D`, `h`, `m` or `s`",
        default="No limit.",
        others="Alike.",
        effect="Files of a stream are deleted once all their messages are older. A year has 365 "
        "days, a month (`M`) 30; `m` is minutes.",
    ),
    Feature(
        argument=SEGMENT_BYTES, place=18, kinds=STREAM_ONLY, check=checks.not_negative,
        policy="stream-max-segment-size-bytes", check_policy=policy_checks.count,
        setting="segment_bytes", merge=smallest, by_queue=False,
        value="`100000000`: bytes, 64 KiB to 256 MiB",
        default="The setting `segment_size`, 8 MiB.",
        others="RabbitMQ: alike. LavinMQ: no.",
        effect="Size of a stream's files. Retention deletes whole files.",
    ),
    # Without effect: filters read the messages.
    Feature(
        argument="x-stream-filter-size-bytes", place=19, kinds=STREAM_ONLY, check=_filter_size,
        policy="stream-filter-size-bytes", check_policy=policy_checks.anything,
        effect="None: filters look at the messages.",
    ),
)
