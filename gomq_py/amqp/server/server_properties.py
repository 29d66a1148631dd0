"""Server properties: makes the table by which the broker introduces itself in connection.start.

docs/decisions/0004 explains each value.
"""
import gomq_py
from gomq_py.build_info import RABBITMQ_VERSION

# kombu, and with it Celery, uses RabbitMQ's extensions only with a product of this name, and takes the
# meaning of basic.qos's global flag from the version: from 3.3 up to 4.0 a global limit is the channel's, as
# in this broker.
PRODUCT = "RabbitMQ"
PLATFORM = "gomq-py"
COPYRIGHT = "Copyright the gomq-py authors"
INFORMATION = "Licensed under the MIT licence"

CAPABILITIES = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}


def server_properties(cluster_name):
    """Return the server-properties table of connection.start, as a dict."""
    return {
        "capabilities": CAPABILITIES,
        "cluster_name": cluster_name,
        "copyright": COPYRIGHT,
        "information": INFORMATION,
        "platform": f"{PLATFORM} {gomq_py.__version__}",
        "product": PRODUCT,
        "version": RABBITMQ_VERSION,
    }
