"""Named cases for parametrized tests, each name beside what it names."""
import pytest


def cases(arguments, named):
    """`pytest.mark.parametrize` from a dict: test ids are its keys, argument values its values."""
    return pytest.mark.parametrize(arguments, list(named.values()), ids=list(named))
