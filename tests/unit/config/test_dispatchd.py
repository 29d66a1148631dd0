"""dispatchd's JSON configuration: what is taken over, and what is refused in one line."""
import base64

import bcrypt
import pytest

from gomq_py.config.settings import Settings
from gomq_py.config.sources import ConfigError, read_file

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
ENCODED = base64.b64encode(HASH.encode()).decode()


def read(tmp_path, text):
    path = tmp_path / "dispatchd.json"
    path.write_text(text, encoding="utf-8")
    settings = Settings()
    return settings, read_file(settings, path)


def test_every_key_is_taken_over(tmp_path):
    settings, warnings = read(
        tmp_path, '{"amqp-port": 1111, "admin-port": 2222, "persist-dir": "/data/x", "strict-mode": false, '
        '"users": {"joe": {"password_bcrypt_base64": "%s"}}}' % ENCODED)

    assert (settings.amqp_port, settings.http_port, settings.data_dir, settings.first_users) == (
        1111, 2222, "/data/x", {"joe": HASH}
    )
    assert warnings == []
    assert settings.origin("amqp_port").endswith("dispatchd.json: amqp-port")


def test_strict_mode_is_said_to_have_no_effect(tmp_path):
    assert "strict-mode has no effect" in read(tmp_path, '{"strict-mode": true}')[1][0]


@pytest.mark.parametrize("text, complaint", [
    ('{"amqp-port": "5672"}', "amqp-port should be a port, a number from 0 to 65535, not a text"),
    ('{"amqp-port": true}', "amqp-port should be a port, a number from 0 to 65535, not a boolean"),
    ('{"admin-port": 70000}', "admin-port should be a port, a number from 0 to 65535, not a number"),
    ('{"persist-dir": 5}', "persist-dir should be the path of a folder, not a number"),
    ('{"strict-mode": "yes"}', "strict-mode should be true or false, not a text"),
    (
        '{"amqp_port": 5672}',
        "unknown key 'amqp_port'; there are amqp-port, admin-port, persist-dir, strict-mode, users",
    ),
    ('{"users": []}', "users should be an object of users, not an array"),
    (
        '{"users": {"joe": {"password": "x"}}}',
        "users: joe should be an object with the one key password_bcrypt_base64",
    ),
    (
        '{"users": {"joe": {"password_bcrypt_base64": "!"}}}',
        "users: joe: password_bcrypt_base64 is not base64",
    ),
    (
        '{"users": {"joe": {"password_bcrypt_base64": "c2VjcmV0"}}}',
        "users: joe: password_bcrypt_base64 does not hold a bcrypt hash",
    ),
    ('{"amqp-port": 1, "amqp-port": 2}', "key 'amqp-port' is given twice"),
    ('[1]', "should be an object, not an array"),
    ('{"amqp-port": 1', "no JSON"),
])
def test_anything_else_is_one_clear_line(tmp_path, text, complaint):
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, text)

    assert complaint in str(refused.value) and "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)
