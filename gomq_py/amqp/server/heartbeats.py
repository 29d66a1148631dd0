"""Heartbeats, under their former name: programs that try the broker import them from here. They live in
``hub``.
"""
from gomq_py.hub.heartbeats import Heartbeats

__all__ = ["Heartbeats"]
