"""The records of the definitions log (storage.logs.definition_log)."""
