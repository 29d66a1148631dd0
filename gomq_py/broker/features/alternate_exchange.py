"""Alternate exchange: gets the messages that an exchange cannot route. Applied by broker.routing.routing."""
from gomq_py.broker.features import policy_checks
from gomq_py.broker.features.feature import ExchangeArgument, Feature

POLICY_KEY = "alternate-exchange"
# Arguments of exchanges; the first has precedence.
ARGUMENTS = (POLICY_KEY, "x-alternate-exchange")

_VALUE, _DEFAULT = "`unrouted`: name of an exchange", "Messages without a queue are dropped or returned."
_EFFECT = "Messages that the exchange cannot route go to this exchange."

ROWS = (
    Feature(
        policy=POLICY_KEY, hands_on_to="exchange",
        check_policy=policy_checks.text, word="alternate exchange name",
        value=_VALUE, default=_DEFAULT, others="Alike.", effect=_EFFECT,
    ),
)
EXCHANGE_ROWS = (
    ExchangeArgument(
        argument=ARGUMENTS[0], also=ARGUMENTS[1:], value=_VALUE, default=_DEFAULT, others="Alike.",
        effect=f"{_EFFECT} The argument has precedence over the policy.",
    ),
)


def alternate_of(arguments, policy):
    """Return the alternate exchange's name from the arguments, or else from the policy; None without one."""
    for key in ARGUMENTS:
        if key in arguments:
            return arguments[key]
    return policy
