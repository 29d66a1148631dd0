"""Creates the transport that the options name, and a reader that uses the transport."""
from gomq_py.spark.amqp_transport import AmqpTransport
from gomq_py.spark.files_transport import FilesTransport
from gomq_py.spark.http_transport import HttpTransport
from gomq_py.spark.options import credentials

AMQP = "amqp"
KINDS = {"http": HttpTransport, "files": FilesTransport, AMQP: AmqpTransport}


def make_transport(options):
    """Return the transport that option ``transport`` names, with the login. Raises OptionError."""
    return KINDS[options["transport"]](options, credentials(options))


def make_reader(options, transport, names):
    """Return the reader that makes rows with the columns ``names`` from the messages of this transport.

    Only this function imports pyarrow: the command gomq-py-pipeline doctor works without it.
    """
    if options["transport"] == AMQP:
        from gomq_py.spark.delivered import DeliveryReader
        return DeliveryReader(options, transport, names)
    from gomq_py.spark.reading import PieceReader
    return PieceReader(options, transport, names)
