"""Certificates for tests: an authority of the test's own, a server certificate for loopback, all as PEM files."""
from types import SimpleNamespace

import trustme


def make(folder, *names):
    """Files ``authority``, ``certificate`` (chain) and ``key`` for these host names or addresses; 127.0.0.1 and localhost without any."""
    authority = trustme.CA()
    issued = authority.issue_cert(*(names or ("127.0.0.1", "localhost")))
    files = SimpleNamespace(authority=folder / "authority.pem", certificate=folder / "certificate.pem", key=folder / "key.pem")
    authority.cert_pem.write_to_path(files.authority)
    for part in issued.cert_chain_pems:
        part.write_to_path(files.certificate, append=True)
    issued.private_key_pem.write_to_path(files.key)
    return files
