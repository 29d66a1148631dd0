"""The topology of a vhost: entities, references between them, their persistence, and export and import."""
