"""Federation: names the upstreams of a queue or exchange. Applied by gomq_py.federation.

Upstreams are parameters of the vhost. Three policy keys name one upstream, a set of upstreams, or a pattern
of their names. As in RabbitMQ, a policy may have only one of the keys.
"""
from gomq_py.broker.features import policy_checks
from gomq_py.broker.features.feature import Feature

# Components of parameters. UPSTREAM also owns the policy keys.
UPSTREAM, UPSTREAM_SET = "federation-upstream", "federation-upstream-set"
PATTERN = "federation-upstream-pattern"
KEYS = frozenset((UPSTREAM, UPSTREAM_SET, PATTERN))
# A set that need not be defined: all upstreams of the vhost.
ALL = "all"


def _said_once(_feature, definition):
    if len(KEYS & definition.keys()) > 1:
        raise policy_checks.PolicyError(
            "cannot specify federation-upstream, federation-upstream-set or federation-upstream-pattern "
            "together"
        )


ROWS = (
    Feature(
        policy=UPSTREAM, check_policy=policy_checks.text, word="federation upstream name", component=UPSTREAM,
        check_beside=_said_once,
        value="`berlin`: name",
        default="No upstream.",
        others="RabbitMQ: a plugin.",
        effect="Messages also come from this upstream ([federation.md](federation.md)).",
    ),
    Feature(
        policy=UPSTREAM_SET, check_policy=policy_checks.text, word="federation upstream set name",
        component=UPSTREAM, check_beside=_said_once,
        value="`all`: name",
        default="No upstream.",
        others="RabbitMQ: a plugin.",
        effect="Messages also come from the upstreams of this set; `all` is every upstream.",
    ),
    Feature(
        policy=PATTERN, check_policy=policy_checks.pattern, word="federation upstream pattern name",
        component=UPSTREAM, check_beside=_said_once,
        value="`^eu-`: regular expression",
        default="No upstream.",
        others="RabbitMQ: a plugin.",
        effect="Messages also come from the upstreams whose names match.",
    ),
)
