"""Topic exchange: matches routing keys with patterns of words and wildcards (AMQP 0-9-1 §3.1.3.3)."""
from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.exchanges.topic_trie import TopicTrie
from gomq_py.broker.names import described
from gomq_py.errors import PreconditionFailed


class TopicExchange(Exchange):
    """Keeps its bindings in a TopicTrie, which finds the destinations for a routing key."""

    type = "topic"

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._trie = TopicTrie()
        self._max_words = 0

    def set_defaults(self, defaults):
        self._max_words = defaults.get("max_topic_words", 0)

    def check_binding(self, routing_key, arguments):
        """Refuse a pattern that would make every later match too slow. Stored patterns are not checked."""
        added = self._trie.costly_words_added(routing_key) if self._max_words else 0
        if added and self._trie.costly_words() + added > self._max_words:
            raise PreconditionFailed(
                f"cannot bind to {described('exchange', self.name, self.vhost)} with the pattern "
                f"'{routing_key}': limit of {self._max_words} words in costly patterns (max_topic_words) is "
                "reached")

    def match(self, routing_key, headers, targets):
        self._trie.match(routing_key, targets)

    def _added(self, binding):
        self._trie.add(binding.routing_key, binding.destination)

    def _removed(self, binding):
        self._trie.remove(binding.routing_key, binding.destination)
