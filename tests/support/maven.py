"""Java libraries from Maven Central, for clients that Debian has no package of, or an older one."""
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support import programs
from tests.support.waiting import in_time

FOLDER = Path(__file__).resolve().parents[2] / "build/maven"
PATIENCE_S = in_time(200)
PROJECT = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>tests</artifactId><version>1</version>
<dependencies><dependency>
<groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
</dependency></dependencies></project>
"""


def class_path(group, name, version):
    """Java's class path of a library with all that it needs, fetched once for a checkout. Skips the test
    where Maven Central cannot be reached, unless skips are forbidden.
    """
    folder = FOLDER / f"{name}-{version}"
    if not folder.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as new:
            fault = _fetch(Path(new), PROJECT.format(group, name, version))
            if fault and programs.skips_are_forbidden():
                pytest.fail(fault)
            if fault:
                pytest.skip(fault)
            (Path(new) / "jars").rename(folder)
    return ":".join(str(path) for path in sorted(folder.glob("*.jar")))


def _fetch(folder, project):
    """Fetch the jars into ``folder/jars``. Returns what went wrong, or ""."""
    (folder / "pom.xml").write_text(project, encoding="utf-8")
    try:
        done = subprocess.run(
            [programs.find("mvn"), "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"],
            cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        return f"Maven Central did not answer within {PATIENCE_S} s"
    if done.returncode:
        return f"Maven Central could not be reached: {done.stdout[-500:]}{done.stderr[-500:]}"
    return ""
