"""Status: a link's state for operators. A leaf."""
from dataclasses import dataclass

from gomq_py.observability.secrets import without_keys


@dataclass(frozen=True)
class Status:
    """``moved``: messages settled at the source; ``rate``: moved per second; ``refused``: refusals by the
    target; ``set_aside``: messages rejected at the source; ``blocked``: the target has asked for a pause.
    """

    state: str
    error: str
    since_ms: int
    moved: int
    unconfirmed: int
    refused: int
    set_aside: int
    reconnects: int
    rate: float
    source_uri: str
    target_uri: str
    blocked: bool


def shown(uri):
    """A URI without login and query, and for HTTP without its path."""
    scheme, mark, rest = uri.partition("://")
    return without_keys(scheme + mark + rest.rpartition("@")[2].partition("?")[0])
