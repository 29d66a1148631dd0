"""A Prometheus of a test's own, in a folder of its own, which scrapes brokers of the test."""
import subprocess

import requests
import yaml

from tests.support.ports import reserve
from tests.support.programs import find
from tests.support.waiting import in_time, wait_until


class PrometheusProcess:
    """Started by ``with``. ``configuration``: what its prometheus.yml says, as a dict."""

    def __init__(self, folder, configuration):
        folder.mkdir()
        self._folder = folder
        file = folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(configuration))
        self._url = f"http://127.0.0.1:{reserve()}"
        self._command = [
            find("prometheus"), f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self._url.removeprefix('http://')}", "--log.level=warn"]
        self.process = None

    def __enter__(self):
        with open(self._folder / "log", "ab") as log:
            self.process = subprocess.Popen(self._command, cwd=self._folder, stdout=log, stderr=log)
        wait_until(self._is_ready, what=lambda: f"Prometheus answers: {self.log_text}")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(in_time(30))

    @property
    def log_text(self):
        """Its warnings and errors."""
        return (self._folder / "log").read_text()

    def api(self, path, **parameters):
        """The data of an answer of its HTTP API."""
        answer = requests.get(f"{self._url}/api/v1/{path}", params=parameters, timeout=in_time(10))
        assert answer.ok, f"{path} {parameters}: {answer.text}"
        return answer.json()["data"]

    def query(self, expression):
        """The samples of an expression now: [(labels, value)]."""
        return [
            (one["metric"], float(one["value"][1])) for one in self.api("query", query=expression)["result"]]

    def _is_ready(self):
        try:
            return requests.get(f"{self._url}/-/ready", timeout=in_time(5)).ok
        except OSError:
            return False
