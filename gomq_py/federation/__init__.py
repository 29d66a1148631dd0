"""Federation: exchanges and queues that also receive messages from other brokers, by policy."""
