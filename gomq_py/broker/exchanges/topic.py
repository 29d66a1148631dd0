"""Topic exchange: patterns of words with wildcards (AMQP 0-9-1 §3.1.3.3)."""
from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.exchanges.topic_trie import TopicTrie


class TopicExchange(Exchange):
    """Bindings in a TopicTrie."""

    type = "topic"

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._trie = TopicTrie()

    def match(self, routing_key, headers, targets):
        self._trie.match(routing_key, targets)

    def _added(self, binding):
        self._trie.add(binding.routing_key, binding.destination)

    def _removed(self, binding):
        self._trie.remove(binding.routing_key, binding.destination)
