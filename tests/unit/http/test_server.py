"""Raw request paths to WSGI's PATH_INFO."""
import pytest

from gomq_py.http.app import NameConverter
from gomq_py.http.server import path_info


@pytest.mark.parametrize("raw, path", [
    ("/api/queues/%2F/q?x=%2F", "/api/queues/%2F/q"),
    ("/api/queues/%2f/q", "/api/queues/%2F/q"),
    ("/api/queues/a%20b", "/api/queues/a b"),
    ("/api/queues/100%25", "/api/queues/100%25"),
])
def test_encoded_slashes_and_percent_signs_stay_apart_from_real_ones(raw, path):
    assert path_info(raw) == path


@pytest.mark.parametrize("name", ["/", "%2F", "100%", "a/b%c"])
def test_a_name_comes_out_of_a_path_as_it_went_in(name):
    from urllib.parse import quote

    segment = path_info("/" + quote(name, safe=""))[1:]

    assert NameConverter.to_python(None, segment) == name
