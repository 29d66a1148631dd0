"""Java: which one is taken, and what is said where there is none that will do."""
import subprocess

import pytest

from gomq_py.pipeline import java


def fake(folder, version, code=0):
    """A java program that says it is of this version, in a folder that may be JAVA_HOME."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n[ \"$1\" = -version ] || {{ for one do echo \"<$one>\"; done; exit; }}\n"
                       f"echo 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {code}\n")
    program.chmod(0o755)
    return folder


@pytest.fixture
def no_bundle(monkeypatch):
    monkeypatch.setattr(java, "_bundled", lambda: None)


def test_java_home_comes_first_then_the_path(tmp_path, no_bundle):
    one, other = fake(tmp_path / "one", "17.0.15"), fake(tmp_path / "other", "21.0.2")

    assert java.find_java({"JAVA_HOME": str(one), "PATH": str(other / "bin")})[:2] == (str(one), 17)
    assert java.find_java({"PATH": str(other / "bin")})[:2] == (str(other), 21)


def test_one_that_is_too_old_or_does_not_start_is_named_and_passed_over(tmp_path, no_bundle):
    old, broken, good = (
        fake(tmp_path / "old", "1.8.0_292"), fake(tmp_path / "broken", "17", code=1),
        fake(tmp_path / "good", "17.0.1"),
    )

    assert java.find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")}).home == str(good)
    with pytest.raises(java.NoJava) as none:
        java.find_java({"JAVA_HOME": str(old), "PATH": str(broken / "bin")})
    assert "is Java 8" in str(none.value) and "no Java that starts" in str(none.value)
    assert "gomq-py[spark-jre]" in str(none.value) and "apt-get install" in str(none.value)


def test_without_any_the_bundled_one_is_started_without_what_it_does_not_know(tmp_path, monkeypatch):
    bundled = fake(tmp_path / "a b", "21.0.8") / "bin" / "java"
    monkeypatch.setattr(java, "_bundled", lambda: bundled)

    found = java.find_java({"PATH": ""}, cache=tmp_path / "cache")

    assert (found.version, found.home) == (21, str(tmp_path / "cache" / "java"))
    said = subprocess.run(
        [found.home + "/bin/java", "-a b", "--add-modules=jdk.incubator.vector", "-c"], capture_output=True,
        text=True,
    )
    assert said.stdout.splitlines() == ["<-a b>", "<-c>"]
