"""Digests: those of hashlib, without OpenSSL."""
import hashlib
import subprocess
import sys

import pytest

from gomq_py import digests


@pytest.mark.parametrize("name", ["md5", "sha256", "sha512", "blake2b"])
@pytest.mark.parametrize("octets", [b"", b"abc", b"x" * 1000])
def test_digests_are_those_of_hashlib(name, octets):
    assert getattr(digests, name)(octets).digest() == getattr(hashlib, name)(octets).digest()


def test_what_an_interpreter_has_not_of_its_own_comes_from_hashlib():
    assert digests._found("sha256", "_no_such_module") is hashlib.sha256


def test_openssl_is_not_loaded():
    """Where the interpreter has its own, which some are built without."""
    source = (
        "import gomq_py.digests, gomq_py.salted_hash as salted, sys; "
        "assert salted.verify('secret', salted.make('secret')); "
        "print('_hashlib' in sys.modules and 'hashlib' not in gomq_py.digests.sha256.__module__)"
    )

    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)

    assert done.stdout.strip() == "False", done.stderr
