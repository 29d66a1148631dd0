"""Which transport the options name."""
from gomq_py.spark.files_transport import FilesTransport
from gomq_py.spark.http_transport import HttpTransport

KINDS = {"http": HttpTransport, "files": FilesTransport}


def make_transport(options, credentials):
    """The transport that option ``transport`` names."""
    return KINDS[options["transport"]](options, credentials)
