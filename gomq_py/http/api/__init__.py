"""One blueprint per kind of resource; ``blueprints`` lists them all."""
from importlib import import_module

# In the order of the routes in docs/management.md.
RESOURCES = ("identity", "overview", "connections", "exchanges", "queues", "bindings", "vhosts", "users")


def blueprints():
    """Every blueprint of the API."""
    return [import_module(f"gomq_py.http.api.{name}").blueprint for name in RESOURCES]
