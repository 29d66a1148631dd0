"""The management app: its routes."""
from gomq_py.http.app import create_app


def test_routes_compile_no_code_for_addresses_that_nobody_writes():
    rules = list(create_app(None).url_map.iter_rules())

    assert len(rules) > 200
    assert {rule._build.__code__.co_name for rule in rules} == {"_write_nothing"}
