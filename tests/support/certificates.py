"""Certificates for tests: an authority of the test's own, certificates for servers and clients,
all as PEM files.
"""
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import trustme


def make(folder, *names, authority=None, ends_in_days=None):
    """Files ``authority``, ``certificate`` (chain) and ``key`` for these host names or addresses; 127.0.0.1
    and localhost without any.

    ``authority``: a trustme.CA of the caller's; else one is made.
    """
    authority = authority or trustme.CA()
    ends = {} if ends_in_days is None else {"not_after": datetime.now(UTC) + timedelta(days=ends_in_days)}
    return write(folder, authority, authority.issue_cert(*(names or ("127.0.0.1", "localhost")), **ends))


def make_client(folder, authority, *names, **options):
    """The same for a client; ``options`` are trustme's: ``common_name``, ``organization_name``..."""
    return write(folder, authority, authority.issue_cert(*names, **options))


def write(folder, authority, issued):
    """Write the files into ``folder``, made when it is missing; files that are there are replaced."""
    folder.mkdir(exist_ok=True)
    files = SimpleNamespace(
        authority=folder / "authority.pem", certificate=folder / "certificate.pem", key=folder / "key.pem"
    )
    authority.cert_pem.write_to_path(files.authority)
    files.certificate.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(files.key)
    return files
