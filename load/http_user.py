"""A Locust user that watches the management pages, as an operator's browser does."""

import os
from urllib.parse import urlsplit

from locust import HttpUser, between, task


def management_url(host):
    """LOAD_HTTP_URL, or port 15672 of the machine of Locust's --host."""
    return os.environ.get("LOAD_HTTP_URL") or f"http://{urlsplit(host).hostname}:15672"


class WatchingUser(HttpUser):
    """Looks at the overview, the queues and the connections every few seconds."""

    fixed_count = 1
    wait_time = between(3, 6)

    def __init__(self, environment):
        self.host = management_url(self.host or environment.host)
        super().__init__(environment)
        self.client.auth = (os.environ.get("LOAD_USER", "guest"), os.environ.get("LOAD_PASSWORD", "guest"))

    @task(3)
    def overview(self):
        """The first page."""
        self.client.get("/api/overview")

    @task(2)
    def queues(self):
        """A page of queues."""
        self.client.get("/api/queues?page=1&page_size=100", name="/api/queues")

    @task
    def connections(self):
        """A page of connections."""
        self.client.get("/api/connections?page=1&page_size=100", name="/api/connections")
