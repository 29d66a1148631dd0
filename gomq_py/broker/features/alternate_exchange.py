"""Alternate exchange: where an exchange sends what it cannot route. Acted on by broker.routing.routing."""
from gomq_py.broker.features import policy_checks
from gomq_py.broker.features.feature import Feature

POLICY_KEY = "alternate-exchange"
# Arguments of exchanges. Both name the alternate exchange; the first holds where both are given.
ARGUMENTS = (POLICY_KEY, "x-alternate-exchange")

ROWS = (
    Feature(
        policy=POLICY_KEY, hands_on_to="exchange",
        check_policy=policy_checks.text, word="alternate exchange name",
        effect="An exchange sends what it cannot route to this one.",
    ),
)


def alternate_of(arguments, policy):
    """The exchange's name, or None: what its argument says, or else its policy."""
    for key in ARGUMENTS:
        if key in arguments:
            return arguments[key]
    return policy
