"""No link: stands where an upstream has none, so that people see that, and why.

An earlier run has stored what makes no upstream, or it was set while nothing acted on it. Owned by the
supervisor, as links are, and asked for the same; it connects to nobody.
"""
import time

from gomq_py.broker.policies.parameters import FAULTY, WAITING
from gomq_py.broker.policies.policy import EXCHANGE
from gomq_py.federation.link import ERROR_CHARACTERS, id_of, title_of


class NoLink:
    """``type`` and ``name`` as of FederationLink; the Upstream has a ``fault``."""

    has_ended = True

    def __init__(self, ways, vhost, name, upstream, type_):
        self.vhost = vhost
        self.name = name
        self.type = type_
        self.upstream = upstream
        self.exchange = vhost.exchanges.get(name) if type_ == EXCHANGE else None
        self.id = id_of(type_, vhost.name, name, upstream)
        self.title = title_of(type_, vhost.name, name, upstream)
        self.state = WAITING if upstream.waiting else FAULTY
        self.told_status = None
        self._ways = ways
        self._since_s = time.time()

    def __repr__(self):
        return f"<NoLink {self.title}: {self.state}>"

    def start(self):
        """It is there to be seen."""
        self._ways.on_change(self)

    def stop(self):
        """Nothing runs."""

    clean_up = restart = rights_changed = gone = stop

    def binding_made(self, _binding):
        """Nobody is told."""

    binding_gone = queue_had_turn = binding_made

    def described(self):
        """As of a link."""
        return {
            "node": self._ways.node_name, self.type: self.name, f"upstream_{self.type}": self.name,
            "type": self.type, "vhost": self.vhost.name, "upstream": self.upstream.name, "id": self.id,
            "status": self.state, "uri": "", "consumer_tag": "", "ack_mode": self.upstream.ack_mode,
            "timestamp": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self._since_s)),
            "local_connection": "", "moved": 0, "unconfirmed": 0, "refused": 0, "set_aside": 0,
            "reconnects": 0, "rate": 0.0, "blocked": False, "error": self.upstream.fault[:ERROR_CHARACTERS],
        }
