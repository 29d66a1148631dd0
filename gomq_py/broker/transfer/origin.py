"""Origin: where a dead letter came from, from the headers of broker.transfer.death. Values only."""
from gomq_py.broker.features.dead_lettering import DEATHS
from gomq_py.broker.header_edit import PropertyEdit
from gomq_py.content.fields import get_key, remove_key

DEATH_HEADERS = (
    DEATHS,
    *(f"x-{which}-death-{what}" for which in ("first", "last") for what in ("reason", "queue", "exchange")),
)


class Origin:
    """The queue that a message died in first, and the exchange and routing keys of its publish: its own key,
    then those of CC.
    """

    __slots__ = ("queue", "exchange", "routing_keys")

    def __init__(self, queue, exchange, routing_keys):
        self.queue = queue
        self.exchange = exchange
        self.routing_keys = routing_keys

    @staticmethod
    def cleaned(properties):
        """Properties in wire form without the headers about deaths; all other octets stay."""
        edit = PropertyEdit(properties)
        headers = edit.headers
        for name in DEATH_HEADERS:
            headers = remove_key(headers, name)
        edit.headers = headers
        return edit.octets()


def origin_of(headers):
    """The Origin in a raw headers table, or None. x-death lists the latest death first, so the first death is
    the last entry, or the one that x-first-death-* names.
    """
    if headers is None:
        return None
    deaths = get_key(headers, DEATHS)
    deaths = [death for death in deaths if _is_death(death)] if isinstance(deaths, list) else []
    if not deaths:
        return None
    first_queue, first_reason = (
        get_key(headers, "x-first-death-queue"), get_key(headers, "x-first-death-reason")
    )
    named = [
        death for death in deaths if death["queue"] == first_queue and death.get("reason") == first_reason
    ]
    death = (named or deaths)[-1]
    keys = [key for key in death["routing-keys"] if isinstance(key, str)]
    return Origin(death["queue"], death["exchange"], keys) if keys else None


def _is_death(death):
    return (
        isinstance(death, dict) and isinstance(death.get("queue"), str)
        and isinstance(death.get("exchange"), str) and isinstance(death.get("routing-keys"), list)
    )
