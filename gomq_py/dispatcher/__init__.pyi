from gomq_py.dispatcher.app import AppTask as AppTask, Dispatcher as Dispatcher
from gomq_py.dispatcher.errors import (
    BadArgument as BadArgument, BadTask as BadTask, DispatcherError as DispatcherError,
    NotDelivered as NotDelivered, NotSupported as NotSupported, ProcessDied as ProcessDied, Reject as Reject,
    Retry as Retry, ServiceDisconnected as ServiceDisconnected, TaskTimeout as TaskTimeout,
    UnknownTask as UnknownTask,
)
from gomq_py.dispatcher.server import InitQueue as InitQueue, Server as Server, ServerConfig as ServerConfig
from gomq_py.dispatcher.signatures import (
    Float32 as Float32, Int8 as Int8, Int16 as Int16, Int32 as Int32, Int64 as Int64, UInt8 as UInt8,
    UInt16 as UInt16, UInt32 as UInt32, UInt64 as UInt64,
)
from gomq_py.dispatcher.tasks import (
    Argument as Argument, Task as Task, TaskConfig as TaskConfig, TaskContext as TaskContext,
    current_task as current_task,
)
from gomq_py.dispatcher.worker import Worker as Worker, WorkerConfig as WorkerConfig
