"""gomq-py: a message broker that serves AMQP 0-9-1 and MQTT from one durable store.

Importing this package imports no other module of it. ``gomq_py.Broker``, which runs a broker inside a
program, is imported when it is first used. With ``GOMQ_PURE_PYTHON=1`` all later imports from this package
load the ``.py`` files instead of the compiled modules.
"""
import os

__version__ = "0.2.0"

if os.environ.get("GOMQ_PURE_PYTHON", "") not in ("", "0"):
    from gomq_py import purepython

    purepython.install()

# Public name -> the module that has it.
_LAZY = {"Broker": "gomq_py.embedded"}

TYPE_CHECKING = False  # a type checker takes it for true; importing typing would cost milliseconds
if TYPE_CHECKING:
    from gomq_py.embedded import Broker as Broker  # noqa: F401
else:  # a type checker would take every name for known

    def __getattr__(name):
        if name in _LAZY:
            from importlib import import_module
            return getattr(import_module(_LAZY[name]), name)
        raise AttributeError(f"module 'gomq_py' has no attribute {name!r}")
