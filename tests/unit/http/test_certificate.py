"""The end of a certificate, as another library wrote it."""
from datetime import datetime, timezone

import pytest
import trustme

from gomq_py.http import certificate


@pytest.mark.parametrize("end", [
    datetime(2038, 1, 2, 3, 4, 5, tzinfo=timezone.utc), datetime(2071, 6, 7, 8, 9, 10, tzinfo=timezone.utc)
])
def test_the_end_is_read_from_pem(tmp_path, end):
    """Before 2050 it is written as UTCTime, later as GeneralizedTime."""
    issued = trustme.CA().issue_cert("localhost", not_after=end)
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")

    assert certificate.end_s(tmp_path / "both.pem") == end.timestamp()


@pytest.mark.parametrize("content", ["", "-----BEGIN CERTIFICATE-----\nMAMC\n-----END CERTIFICATE-----\n",
                                     "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_refused(tmp_path, content):
    (tmp_path / "broken.pem").write_text(content)

    with pytest.raises(ValueError):
        certificate.end_s(tmp_path / "broken.pem")
