"""Digests of short texts by Python's own hash functions, without OpenSSL.

hashlib is no faster for a password or a name, and loads OpenSSL: 4 MB that a broker without TLS saves.
Imports only the standard library.
"""
from importlib import import_module


def _found(name, *modules):
    """Return the hash constructor ``name`` of the first importable of ``modules``, else of hashlib."""
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except ImportError:
            pass
    return getattr(import_module("hashlib"), name)


md5 = _found("md5", "_md5")
sha256 = _found("sha256", "_sha2", "_sha256")  # the first from Python 3.12 on
sha512 = _found("sha512", "_sha2", "_sha512")
blake2b = _found("blake2b", "_blake2")
