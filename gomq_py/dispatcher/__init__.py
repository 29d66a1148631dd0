"""Task queue over AMQP with typed arguments, compatible with the Go library gofort/dispatcher.
docs/dispatcher.md describes it. Each submodule is imported when one of its names is first used.
"""

from importlib import import_module

# module: names in the module; __init__.pyi tells type checkers the same
_MODULES = {
    "app": "Dispatcher AppTask",
    "server": "Server ServerConfig InitQueue",
    "worker": "Worker WorkerConfig",
    "tasks": "Task Argument TaskConfig TaskContext current_task",
    "signatures": "Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float32",
    "errors": "DispatcherError BadTask BadArgument UnknownTask NotDelivered ServiceDisconnected TaskTimeout "
              "Retry Reject NotSupported ProcessDied",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
