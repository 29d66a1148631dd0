"""Heartbeats under the name they had before ``hub`` was a room of its own: programs that try the broker
import them from here.
"""
from gomq_py.hub.heartbeats import Heartbeats

__all__ = ["Heartbeats"]
