"""The routes of the API: each module has the blueprint of one kind of resource."""
