"""Which transport the options name, and who makes rows of what it gives."""
from gomq_py.spark.amqp_transport import AmqpTransport
from gomq_py.spark.files_transport import FilesTransport
from gomq_py.spark.http_transport import HttpTransport

AMQP = "amqp"
KINDS = {"http": HttpTransport, "files": FilesTransport, AMQP: AmqpTransport}


def make_transport(options, credentials):
    """The transport that option ``transport`` names."""
    return KINDS[options["transport"]](options, credentials)


def make_reader(options, transport, names):
    """Who reads pieces through it, with these columns. That needs pyarrow, which whoever only looks at a
    broker (gomq-py-pipeline doctor) may not have.
    """
    if options["transport"] == AMQP:
        from gomq_py.spark.delivered import DeliveryReader
        return DeliveryReader(options, transport, names)
    from gomq_py.spark.reading import PieceReader
    return PieceReader(options, transport, names)
