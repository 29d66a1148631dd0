"""Topology log: durable definitions as the records of a log (storage.logs.definition_log)."""
