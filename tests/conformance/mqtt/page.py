"""The tables of docs/mqtt-conformance.md: each statement, and the tests that say they hold it."""
import ast
from pathlib import Path

from tests.conformance.mqtt import statements

FOLDER = Path(__file__).parent
_DECORATORS = {"mqtt_3": 3, "mqtt_5": 5}


def tests_by_statement(version):
    """Number of a statement -> names of the tests that hold it, as module and function."""
    found: dict[str, list[str]] = {}
    for path in sorted(FOLDER.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            for decorator in node.decorator_list:
                name = getattr(getattr(decorator, "func", None), "id", "")
                if _DECORATORS.get(name) == version:
                    for argument in decorator.args:
                        found.setdefault(argument.value, []).append(
                            f"`{path.stem.removeprefix('test_')}: {node.name.removeprefix('test_')}`")
    return found


def rows(version):
    """(statement, what it asks, tests or reason) of every statement of a version."""
    table, reasons = {
        3: (statements.MQTT_3_1_1, statements.NOT_TESTED_3_1_1),
        5: (statements.MQTT_5, statements.NOT_TESTED_5),
    }[version]
    held = tests_by_statement(version)

    def cell(number):
        return "<br>".join(held.get(number, ())) or f"not tested: {reasons.get(number, '')}"

    return [(f"MQTT-{number}", words, cell(number)) for number, words in table.items()]


def not_held(version):
    """Statements without a test and without a reason."""
    return [number for number, _, tests in rows(version) if tests == "not tested: "]
