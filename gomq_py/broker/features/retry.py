"""Retry: back-off for returned messages, RabbitMQ's ``x-delayed-retry-*``. Applied by broker.queues.retry."""
from gomq_py.broker.features import checks, policy_checks
from gomq_py.broker.features.feature import NO_STREAM, Feature
from gomq_py.broker.values import MAX_TIMER_MS, is_count

# How a message is settled: ACK, acknowledged; LOST, put back at its channel's end; RETURNED, put back by
# basic.nack or basic.recover; FAILED, put back by basic.reject; REJECT, dead-lettered or dropped; TAKE, taken
# over from its channel. Bits, which a setting combines.
ACK, LOST, RETURNED, FAILED, REJECT, TAKE = 0, 1, 2, 4, 8, 16

# x-delayed-retry-type: the kinds of return that wait. As in RabbitMQ, basic.reject is a failure, and so is
# the end of a channel that holds the message: the message may have crashed its consumer, and would crash it
# again at once. basic.nack and basic.recover are returns.
TYPES = {"disabled": 0, "failed": LOST | FAILED, "returned": RETURNED, "all": LOST | RETURNED | FAILED}
_WORDS = "disabled", "all", "failed", "returned"


def retry_of(arguments, policy):
    """Return the back-off as (kinds, min_ms, max_ms), or None if returned messages do not wait. ``kinds``:
    a bit mask, such as LOST | FAILED, of the returns after which a message waits. Without a maximum each
    wait is as long as the first, as in RabbitMQ.
    """
    type_, min_ms, max_ms = (arguments.get(row.argument, policy.get(row.policy)) for row in ROWS)
    kinds = TYPES.get(type_, 0)
    if not kinds or not is_count(min_ms) or min_ms == 0:
        return None
    min_ms = min(min_ms, MAX_TIMER_MS)
    return kinds, min_ms, min(max_ms, MAX_TIMER_MS) if is_count(max_ms) else min_ms


def described(retry):
    """Describe a back-off from retry_of() in RabbitMQ's words."""
    if retry is None:
        return "disabled"
    kinds, min_ms, max_ms = retry
    word = next(name for name, bits in TYPES.items() if bits == kinds)
    return f"{word} (min: {min_ms}ms, max: {max_ms}ms)"


ROWS = (
    Feature(
        argument="x-delayed-retry-type", place=24, kinds=NO_STREAM,
        check=checks.one_of("invalid_delayed_retry_type", *_WORDS),
        policy="delayed-retry-type", check_policy=policy_checks.one_of(*_WORDS),
        setting="retry", merge=lambda _feature, arguments, policy: retry_of(arguments, policy),
        value="`failed`: `disabled`, `all`, `failed` or `returned`",
        default="`disabled`",
        others="RabbitMQ: quorum queues, from 4.3. LavinMQ: no.",
        effect="Which returned messages wait before they are ready again. `failed`: by "
        "`basic.reject` or the end of a channel; `returned`: by `basic.nack` or `basic.recover`.",
    ),
    Feature(
        argument="x-delayed-retry-min", place=25, kinds=NO_STREAM, check=checks.milliseconds,
        policy="delayed-retry-min", check_policy=policy_checks.count,
        value="`1000`: ms, 0 to ten years",
        default="They do not wait.",
        others="RabbitMQ: quorum queues, from 4.3. LavinMQ: no.",
        effect="Wait after the first return. With a maximum, the second wait is twice as long, "
        "the third three times.",
    ),
    Feature(
        argument="x-delayed-retry-max", place=26, kinds=NO_STREAM, check=checks.milliseconds,
        policy="delayed-retry-max", check_policy=policy_checks.count,
        value="`60000`: ms, 0 to ten years",
        default="Each wait is as long as the first.",
        others="RabbitMQ: quorum queues, from 4.3. LavinMQ: no.",
        effect="Longest wait.",
    ),
)
