"""Makes the transport that the options name, and the reader for it."""
from gomq_py.spark.amqp_transport import AmqpTransport
from gomq_py.spark.files_transport import FilesTransport
from gomq_py.spark.http_transport import HttpTransport
from gomq_py.spark.options import credentials

AMQP = "amqp"
KINDS = {"http": HttpTransport, "files": FilesTransport, AMQP: AmqpTransport}


def make_transport(options):
    """The transport that option ``transport`` names, with the options' login. Raises OptionError."""
    return KINDS[options["transport"]](options, credentials(options))


def make_reader(options, transport, names):
    """The reader of pieces through the transport, with these columns. Needs pyarrow, which users that only
    look at a broker (gomq-py-pipeline doctor) may not have.
    """
    if options["transport"] == AMQP:
        from gomq_py.spark.delivered import DeliveryReader
        return DeliveryReader(options, transport, names)
    from gomq_py.spark.reading import PieceReader
    return PieceReader(options, transport, names)
