"""Which transport the options name, and who makes rows of what it gives."""
from gomq_py.spark.amqp_transport import AmqpTransport
from gomq_py.spark.delivered import DeliveryReader
from gomq_py.spark.files_transport import FilesTransport
from gomq_py.spark.http_transport import HttpTransport
from gomq_py.spark.reading import PieceReader

KINDS = {
    "http": (HttpTransport, PieceReader), "files": (FilesTransport, PieceReader),
    "amqp": (AmqpTransport, DeliveryReader),
}


def make_transport(options, credentials):
    """The transport that option ``transport`` names."""
    return KINDS[options["transport"]][0](options, credentials)


def make_reader(options, transport, names):
    """Who reads pieces through it, with these columns."""
    return KINDS[options["transport"]][1](options, transport, names)
