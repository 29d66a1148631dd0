"""One blueprint per kind of resource."""
