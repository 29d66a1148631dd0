"""Which transport the options name, and who makes rows of what it gives."""
from importlib import import_module

from gomq_py.spark.amqp_transport import AmqpTransport
from gomq_py.spark.files_transport import FilesTransport
from gomq_py.spark.http_transport import HttpTransport

# The transport, and who makes rows: by name, for that needs pyarrow, which whoever only looks at a broker
# (gomq-py-pipeline doctor) may not have.
KINDS = {
    "http": (HttpTransport, "reading.PieceReader"), "files": (FilesTransport, "reading.PieceReader"),
    "amqp": (AmqpTransport, "delivered.DeliveryReader"),
}


def make_transport(options, credentials):
    """The transport that option ``transport`` names."""
    return KINDS[options["transport"]][0](options, credentials)


def make_reader(options, transport, names):
    """Who reads pieces through it, with these columns."""
    module, name = KINDS[options["transport"]][1].split(".")
    return getattr(import_module(f"gomq_py.spark.{module}"), name)(options, transport, names)
