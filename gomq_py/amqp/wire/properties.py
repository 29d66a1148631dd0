"""Properties under the name they had before ``content`` was a room of its own: programs of users import them
from here.
"""
from gomq_py.content.properties import Properties, PropertyScan

__all__ = ["Properties", "PropertyScan"]
