"""The routes of the management API: each module has the Flask blueprint of one kind of resource."""
