"""Writes durable definitions as records of the definitions log (storage.logs.definition_log)."""
