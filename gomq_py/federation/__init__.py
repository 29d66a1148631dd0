"""Federation: lets exchanges and queues also receive messages from other brokers, as policies say."""
