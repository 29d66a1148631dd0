"""Links: what moves messages between brokers, for shovels and for federation."""
