"""Typed task queue over AMQP, interoperable with the Go library gofort/dispatcher: docs/dispatcher.md.

Names are loaded at first use: a sender does not load the worker, nor a Go-like server the app.
"""

from importlib import import_module

_HOMES = {
    "Dispatcher": "app",
    "AppTask": "app",
    "Server": "server",
    "ServerConfig": "server",
    "InitQueue": "server",
    "Worker": "worker",
    "WorkerConfig": "worker",
    "Task": "tasks",
    "Argument": "tasks",
    "TaskConfig": "tasks",
    "TaskContext": "tasks",
    "current_task": "tasks",
    "Int8": "signatures",
    "Int16": "signatures",
    "Int32": "signatures",
    "Int64": "signatures",
    "UInt8": "signatures",
    "UInt16": "signatures",
    "UInt32": "signatures",
    "UInt64": "signatures",
    "Float32": "signatures",
    "DispatcherError": "errors",
    "BadTask": "errors",
    "BadArgument": "errors",
    "UnknownTask": "errors",
    "NotDelivered": "errors",
    "ServiceDisconnected": "errors",
    "TaskTimeout": "errors",
    "Retry": "errors",
    "Reject": "errors",
    "NotSupported": "errors",
    "ProcessDied": "errors",
}
__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
