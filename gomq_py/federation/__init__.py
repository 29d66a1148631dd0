"""Federation: exchanges and queues that take messages from other brokers too, as policies say."""
