"""gomq-py: a message broker that serves AMQP 0-9-1 and MQTT from one durable store.

Importing this package imports nothing else of it; ``gomq_py.Broker``, a broker inside your program, is
imported when it is first named. ``GOMQ_PURE_PYTHON=1`` makes every later import take the plain ``.py``
instead of its compiled twin.
"""
import os

__version__ = "0.1.0"

if os.environ.get("GOMQ_PURE_PYTHON", "") not in ("", "0"):
    from gomq_py import purepython

    purepython.install()

# Public name -> the module that has it.
_LAZY = {"Broker": "gomq_py.embedded"}


def __getattr__(name):
    if name in _LAZY:
        from importlib import import_module
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'gomq_py' has no attribute {name!r}")
