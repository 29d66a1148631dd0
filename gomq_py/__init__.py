"""gomq-py: a message broker. AMQP 0-9-1 and MQTT on one durable store.

Importing this package imports nothing else of it. ``GOMQ_PURE_PYTHON=1`` makes every later import take the plain ``.py`` where a compiled twin
exists.
"""
import os

__version__ = "0.1.0"

if os.environ.get("GOMQ_PURE_PYTHON", "") not in ("", "0"):
    from gomq_py import purepython

    purepython.install()
