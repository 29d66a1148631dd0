"""The interpreted run leaves out what has no typed line, and reaches every compiled module all the same."""
import pytest

from gomq_py import build_info
from tests.support.typed import ENTERED_BY, ROOT, UNTYPED, has_types, own_tests


@pytest.mark.parametrize("name", build_info.hot_modules())
def test_every_compiled_module_has_tests_that_run_interpreted(name):
    tests = own_tests(name) or [ROOT / ENTERED_BY.get(name, "nowhere")]

    kept = [path for path in tests if path.exists() and has_types(path)]

    assert kept != [], f"name the test that enters {name} in tests/support/typed.py"


def test_what_enters_a_module_is_named_only_where_it_has_no_tests_of_its_own():
    hot = build_info.hot_modules()

    assert [name for name in ENTERED_BY if name not in hot or own_tests(name)] == []


def test_what_is_left_out_exists_and_holds_no_tests_of_a_compiled_module():
    kept = {path for name in build_info.hot_modules() for path in own_tests(name)}

    assert [place for place in UNTYPED if not (ROOT / place).exists()] == []
    assert [path for path in kept if not has_types(path)] == []


def test_each_test_of_this_session_has_the_marker_by_that_rule(request):
    wrong = [item.nodeid for item in request.session.items
             if (item.get_closest_marker("typed") is not None) != has_types(item.path)]

    assert wrong == []
