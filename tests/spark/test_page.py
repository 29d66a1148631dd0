"""docs/spark.md: what it shows runs as it stands and prints what it says."""
import contextlib
import io
import re

from gomq_py.pipeline.running import was_slow_to_start
from gomq_py.spark.options import TABLE
from tests.unit.source_tree import ROOT

PAGE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


def test_the_walk_runs_and_prints_what_it_says(spark, broker, tmp_path):
    names: dict = {}
    said = None
    for kind, text in BLOCK.findall(PAGE):
        if kind == "text":
            assert [line.rstrip() for line in said.splitlines() if line] == [
                line.rstrip() for line in text.splitlines() if line
            ]
            continue
        text = text.replace("http://127.0.0.1:15672", broker.url).replace(
            "amqp://guest:guest@127.0.0.1:5672", broker.child.amqp_url
        )
        text = text.replace('"table', f'"{tmp_path}/table')  # a relative path is the JVM's affair
        said = printed(compile(text, "docs/spark.md", "exec"), names)


def printed(code, names):
    """What the code says. Once more where Spark had no time to start what it needs."""
    while True:
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(code, names)
        except Exception as error:
            if not was_slow_to_start(error):
                raise
            continue
        return out.getvalue()


def test_every_option_is_on_the_page():
    assert [name for name in TABLE if f"`{name}`" not in PAGE and name != "dataDir"] == []
