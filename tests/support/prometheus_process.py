"""A Prometheus of a test's own, in a folder of its own, which scrapes brokers of the test."""
import math
import subprocess

import requests
import yaml

from tests.support.command import ROOT
from tests.support.ports import reserve
from tests.support.programs import find
from tests.support.waiting import in_time, wait_until

ETC = ROOT / "etc"
SHIPPED = yaml.safe_load((ETC / "prometheus.yml").read_text())
# Fifteen seconds of the shipped file, in milliseconds here.
FIFTEEN_SECONDS_MS = math.ceil(in_time(200))


def hurried(interval):
    """How long an interval of the shipped file, such as 15s or 1m, lasts here."""
    count, unit = int(interval[:-1]), {"s": 1, "m": 60}[interval[-1]]
    return f"{count * unit * FIFTEEN_SECONDS_MS // 15}ms"


def shipped(ports):
    """The shipped file, with these brokers for its targets, and its time in fast motion."""
    hasty = {"scrape_interval": hurried(SHIPPED["global"]["scrape_interval"])}
    jobs = [
        {**job, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
         "scrape_interval": hurried(job.get("scrape_interval", SHIPPED["global"]["scrape_interval"]))}
        for job in SHIPPED["scrape_configs"]]
    for job in (hasty, *jobs):
        job["scrape_timeout"] = job["scrape_interval"]
    rules = [str(ETC / name) for name in SHIPPED["rule_files"]]
    return {
        **SHIPPED, "global": {**hasty, "evaluation_interval": hasty["scrape_interval"]}, "rule_files": rules,
        "scrape_configs": jobs}


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
