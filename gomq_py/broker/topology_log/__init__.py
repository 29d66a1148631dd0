"""What is durable beside messages, as the records of a log (storage.logs.definition_log)."""
