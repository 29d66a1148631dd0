"""AMQP connections from Spark's driver and workers to the broker.

The sink publishes over these connections, and the transport ``amqp`` consumes. A failed connect raises one of
the data source's errors (spark.errors), with a text for the operator.
"""
from dataclasses import dataclass, field
from urllib.parse import quote

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ClientError, ConnectionClosed
from gomq_py.spark.errors import Refused, Unreachable
from gomq_py.spark.options import CREDENTIALS_ADVICE, Credentials, Options

DEFAULT_AMQP_URL = "amqp://127.0.0.1:5672"
ACCESS_REFUSED, NOT_FOUND = 403, 404


@dataclass
class AmqpDoor:
    """Opens AMQP connections to the broker that the options name."""

    options: Options
    credentials: Credentials = field(repr=False)

    @property
    def url(self):
        """The AMQP URL, with the password. Logs and errors must use ``shown`` instead."""
        user, password = self.credentials.user, self.credentials.token or self.credentials.password
        scheme, _, host = self.shown.partition("://")
        host = host.partition("/")[0]
        ca_file = self.options["caFile"]
        query = f"?cacertfile={quote(ca_file, safe='')}" if ca_file else ""
        return (f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{host}/"
                f"{quote(self.options['vhost'], safe='')}{query}")

    @property
    def shown(self):
        """The broker's AMQP URL without user and password."""
        return self.options["amqpUrl"] or DEFAULT_AMQP_URL

    def connect(self, name="gomq-py spark sink"):
        """Open and return a Connection with this name. Raises Refused, Unreachable."""
        try:
            return Connection(
                self.url, timeout_s=self.options["timeoutSeconds"], heartbeat_s=0, name=name)
        except ConnectionClosed as error:
            if error.reply_code == ACCESS_REFUSED:
                raise Refused(
                    f"{self.shown} does not let user '{self.credentials.user}' in "
                    f"({error}): {CREDENTIALS_ADVICE}") from None
            raise Unreachable(f"{self.shown} closed the connection: {error}") from None
        except (OSError, ClientError) as error:
            raise Unreachable(
                f"{self.shown} cannot be reached: {error}. Is the broker there (option amqpUrl)?") from None
