"""The command line: options reach the source by their names, and what goes wrong is one line."""
import pytest
from click.testing import CliRunner

from gomq_py.pipeline.cli import pipeline


def run(*arguments):
    return CliRunner().invoke(pipeline, arguments)


def test_every_command_explains_itself():
    listed = run("--help").output
    for name in pipeline.commands:
        assert name in listed
        assert run(name, "--help").exit_code == 0


@pytest.mark.parametrize("arguments, words", [
    (
        ("doctor", "--url", "http://127.0.0.1:1", "--streams", "a", "--option", "retrySeconds=0"),
        "cannot be reached",
    ),
    (("doctor", "--url", "http://127.0.0.1:1", "--option", "retrySeconds=0"), "cannot be reached"),
    (("doctor", "--streams", "a", "--option", "bananas=1"), "option bananas is unknown"),
    (("doctor", "--streams", "a", "--data-dir", "/nowhere"), "is no data folder of a gomq-py"),
])
def test_doctor_says_what_is_wrong(arguments, words):
    done = run(*arguments)

    assert done.exit_code == 1 and words in done.output


@pytest.mark.parametrize("arguments", [
    ("bronze",), ("doctor", "--option", "x"), ("nonsense",),
    ("bronze", "--out", "x", "--prometheus", "/no-folder/x.prom"),
    ("bronze", "--out", "x", "--prometheus-address", "somewhere")])
def test_wrong_usage_is_exit_code_2(arguments):
    assert run(*arguments).exit_code == 2
