"""Doctor: each thing that is missing is one line that says what to do."""
import pytest

from gomq_py.pipeline import doctor, java
from gomq_py.pipeline.doctor import BAD, OK, WARNING

NOBODY = {"subscribe": "a", "url": "http://127.0.0.1:1", "retrySeconds": "0"}


def findings(reading=NOBODY, folder="."):
    return {finding.subject: finding for finding in doctor.examine(reading, str(folder))}


@pytest.fixture
def no_java(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_bundled", lambda: None)


def test_no_java_is_said_with_what_to_install(no_java):
    found = findings()["java"]

    assert (
        found.level == BAD and "Java 17 or later, and there is none" in found.text
        and "gomq-py[spark-jre]" in found.text
    )


def test_a_missing_or_unknown_pyspark_is_said(monkeypatch):
    monkeypatch.setattr(doctor.build_info, "interpreted_modules", lambda: ["gomq_py.storage.format.columns"])
    monkeypatch.setattr(
        doctor.importlib.util, "find_spec", lambda name: None if name in ("pyspark", "pyarrow") else object()
    )
    assert findings()["pyspark"].text == "is not installed: pip install 'gomq-py[spark]'"

    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "4.1.2")
    found = findings()
    assert found["pyspark"].level == BAD and "4.2 or 4.3 is needed" in found["pyspark"].text
    assert found["codec"].level == WARNING


def test_a_broker_that_is_not_there_is_said():
    assert findings()["broker"].level == BAD and "option url" in findings()["broker"].text


def test_little_room_is_said(monkeypatch, tmp_path):
    assert findings(folder=tmp_path / "not" / "there" / "yet")["disk"].level in (OK, BAD)
    monkeypatch.setattr(doctor, "LITTLE_DISK", 1 << 62)
    assert "make room" in findings(folder=tmp_path)["disk"].text
