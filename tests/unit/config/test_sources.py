"""Precedence of flags, environment and file, and what a mistake in each of them is answered with."""
import re

import pytest

from gomq_py import salted_hash

from gomq_py.config.settings import BY_KEY
from gomq_py.config.sources import ConfigError, flag_parser, load


@pytest.fixture
def load_from(tmp_path):
    """A function from flags, environment and INI text to (settings, warnings)."""

    def from_(*flags, environment=None, ini=None):
        if ini is not None:
            path = tmp_path / "gomq.ini"
            path.write_text(ini)
            flags = ("--config", str(path), *flags)
        return load(flag_parser().parse_args(flags), {
            "GOMQ_CONFIGURATION_DIRECTORY": str(tmp_path), **(environment or {})
        })

    return from_


def test_nothing_given_means_defaults(load_from):
    settings, warnings = load_from()

    assert settings.amqp_port == 5672
    assert settings.amqp_bind == "127.0.0.1"
    assert settings.origin("amqp_port") == "default"
    assert warnings == []


def test_file_wins_over_default(load_from):
    settings, _ = load_from(ini="[amqp]\nport = 5673\n")

    assert settings.amqp_port == 5673
    assert settings.origin("amqp_port").endswith("gomq.ini:2")


def test_environment_wins_over_file(load_from):
    settings, _ = load_from(ini="[amqp]\nport = 5673\n", environment={"GOMQ_AMQP_PORT": "5674"})

    assert settings.amqp_port == 5674


def test_flag_wins_over_environment(load_from):
    settings, _ = load_from(
        "--port", "5675", ini="[amqp]\nport = 5673\n", environment={"GOMQ_AMQP_PORT": "5674"}
    )

    assert settings.amqp_port == 5675


def test_lavinmqs_environment_names_work_and_ours_win(load_from):
    assert load_from(environment={"LAVINMQ_DATADIR": "/a"})[0].data_dir == "/a"
    assert load_from(environment={"LAVINMQ_DATADIR": "/a", "GOMQ_DATADIR": "/b"})[0].data_dir == "/b"


def test_systemds_state_directory_is_the_data_folder(load_from):
    assert load_from(environment={"STATE_DIRECTORY": "/var/lib/x"})[0].data_dir == "/var/lib/x"


def test_file_is_found_in_the_configuration_folder(load_from, tmp_path):
    (tmp_path / "gomq.ini").write_text("[amqp]\nheartbeat = 7\n")

    assert load_from()[0].heartbeat == 7


def test_bind_is_for_all_protocols_and_the_protocols_own_wins(load_from):
    settings, _ = load_from("--bind", "0.0.0.0", "--http-bind", "127.0.0.2")

    assert (settings.amqp_bind, settings.mqtt_bind, settings.http_bind) == ("0.0.0.0", "0.0.0.0", "127.0.0.2")


def test_no_sync_turns_sync_off(load_from):
    assert load_from("--no-sync")[0].sync is False
    assert load_from(environment={"GOMQ_SYNC": "false"})[0].sync is False


def test_minus_one_is_a_port_that_is_off(load_from):
    assert load_from("--port", "-1")[0].amqp_port == -1


@pytest.mark.parametrize("flags, complaint", [
    (("--port", "70000"), "--port: '70000' is not a port (1 to 65535, 0 for any free one, -1 for none)"),
    (("-p", "x"), "-p: 'x' is not a port"),
    (("--prot", "1"), "unrecognized arguments: --prot 1"),
    (("--port",), "argument -p/--port/--amqp-port: expected one argument"),
])
def test_bad_flag_is_one_line_that_names_it(load_from, flags, complaint):
    with pytest.raises(ConfigError) as caught:
        load_from(*flags)

    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_environment_names_the_variable(load_from):
    with pytest.raises(ConfigError, match="^GOMQ_AMQP_PORT: 'x' is not a port"):
        load_from(environment={"GOMQ_AMQP_PORT": "x"})


@pytest.mark.parametrize("ini, complaint", [
    ("[amqp]\nport = x\n", "gomq.ini:2: port: 'x' is not a port"),
    ("[main]\n\n[replication]\n", "gomq.ini:3: unknown section [replication]"),
    ("[main]\ndata_dir\n", "gomq.ini:2: 'data_dir' is not a key = value line"),
    ("[main\n", "gomq.ini:1: '[main' is not a [section]"),
    ("[main]\nsync = perhaps\n", "gomq.ini:2: sync: 'perhaps' is not a yes or no"),
    (
        "[amqp]\nmax_message_size = 0\n",
        "gomq.ini:2: max_message_size: '0' is not a whole number from 1 to 264241152",
    ),
    (
        "[amqp]\nmax_message_size = 268435456\n",
        "gomq.ini:2: max_message_size: '268435456' is not a whole number from 1 to 264241152",
    ),
    ("[main]\ntcp_keepalive = 60:10\n", "gomq.ini:2: tcp_keepalive: '60:10' is not a keepalive"),
])
def test_bad_file_names_file_and_line(load_from, ini, complaint):
    with pytest.raises(ConfigError) as caught:
        load_from(ini=ini)

    assert complaint in str(caught.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot read .*absent.ini: No such file"):
        load(flag_parser().parse_args(["--config", str(tmp_path / "absent.ini")]), {})


def test_unknown_key_is_a_warning_with_its_place(load_from):
    settings, warnings = load_from(ini="[amqp]\nprot = 1\nport = 2\n")

    assert settings.amqp_port == 2
    assert (
        len(warnings) == 1
        and warnings[0].endswith("gomq.ini:2: unknown key 'prot' in section [amqp] is ignored")
    )


def test_deprecated_place_works_with_a_warning_and_yields_to_the_options_own(load_from):
    settings, warnings = load_from(
        ini="[main]\ndefault_consumer_prefetch = 5\n[amqp]\ndefault_consumer_prefetch = 6\n"
    )

    assert settings.default_consumer_prefetch == 5
    assert "deprecated" in warnings[0]


def test_http_is_another_name_of_mgmt(load_from):
    assert load_from(ini="[http]\nport = -1\n")[0].http_port == -1


def test_option_without_effect_is_said_aloud_when_turned_on_only(load_from):
    assert "has no effect yet" in load_from(ini="[clustering]\nmax_unsynced_actions = 5\n")[1][0]
    assert load_from(ini="[clustering]\nmax_unsynced_actions = 0\n")[1] == []


def test_sni_section_is_taken_over_with_values_of_the_right_kinds(load_from):
    settings, warnings = load_from(
        ini=(
            "[sni:Example.org]\ntls_cert = a.pem\ntls_verify_peer = "
            "yes\nmqtt_tls_min_version = 1.3\n[sni:*.b]\n"
        )
    )

    assert warnings == []
    assert settings.sni == {
        "example.org": {"tls_cert": "a.pem", "tls_verify_peer": True, "mqtt_tls_min_version": "1.3"}
    }


def test_mistakes_in_a_sni_section_are_named(load_from):
    assert load_from(ini="[sni:a]\nport = 1\n")[1][0].endswith(
        "gomq.ini:2: unknown key 'port' in section [sni:a] is ignored"
    )
    with pytest.raises(ConfigError, match=r"gomq.ini:2: http_tls_verify_peer: 'perhaps' is not a yes or no"):
        load_from(ini="[sni:a]\nhttp_tls_verify_peer = perhaps\n")


@pytest.mark.parametrize("key, text, value", [
    (
        "proxy_protocol_trusted_sources", "10.0.0.5, 192.168.0.0/16,fd00::/8",
        "10.0.0.5/32, 192.168.0.0/16, fd00::/8",
    ),
    ("unix_mode", "0600", "600"), ("tcp_proxy_protocol", "true", "2"),
])
def test_values_of_listeners_are_parsed(load_from, key, text, value):
    option = BY_KEY["amqp", key]

    assert option.kind.show(getattr(load_from(ini=f"[amqp]\n{key} = {text}\n")[0], option.attribute)) == value


@pytest.mark.parametrize("key, text", [
    ("proxy_protocol_trusted_sources", "10.0.0.0/33"),
    ("proxy_protocol_trusted_sources", "proxy.example.com"), ("unix_mode", "rw-rw----"),
    ("unix_mode", "1777"), ("unix_mode", "689"),
])
def test_values_of_listeners_that_make_no_sense_are_named(load_from, key, text):
    with pytest.raises(ConfigError, match=f"gomq.ini:2: {key}: '{text}' is not "):
        load_from(ini=f"[amqp]\n{key} = {text}\n")


@pytest.mark.parametrize("flags", [("-l", "--"), ("-b--",), ("--config=--",)])
def test_a_flag_that_is_given_dashes_for_its_value_is_told_so(load_from, flags):
    with pytest.raises(ConfigError, match="expected one argument"):
        load_from(*flags)


def test_address_for_all_protocols_asks_for_none_that_is_missing(load_from):
    settings, warnings = load_from("--bind", "0.0.0.0")

    assert (settings.amqp_bind, settings.mqtt_bind, warnings) == ("0.0.0.0", "0.0.0.0", [])


def test_help_says_what_a_flag_turns_off_and_what_holds_without_it():
    text = " ".join(flag_parser().format_help().split())

    assert "--no-sync Turn off what is on: flush to disk before a confirm leaves." in text
    assert "Port of the management API. (default: 15672)" in text


HASH = "+pHuxkR9fCyrrwXjOD4BP4XbzO3l8LJr8YkThMgJ0yVHFRE+"  # of "guest"


def test_password_in_the_environment_is_kept_as_a_hash(load_from):
    settings, warnings = load_from(environment={"GOMQ_DEFAULT_PASSWORD": "a-Secret word"})

    assert salted_hash.verify("a-Secret word", settings.default_password_hash)
    assert warnings == []
    assert "a-Secret word" not in repr(vars(settings))


def test_hash_in_the_environment_is_taken_as_it_is(load_from):
    assert load_from(environment={"GOMQ_DEFAULT_PASSWORD_HASH": HASH})[0].default_password_hash == HASH
    assert load_from(environment={"LAVINMQ_DEFAULT_PASSWORD": HASH})[0].default_password_hash == HASH


def test_password_that_looks_like_a_hash_is_one_all_the_same_and_said(load_from):
    settings, warnings = load_from(environment={"GOMQ_DEFAULT_PASSWORD": HASH})

    assert salted_hash.verify(HASH, settings.default_password_hash)
    assert warnings == [
        "GOMQ_DEFAULT_PASSWORD looks like a hash, and is taken for the password itself: "
        "GOMQ_DEFAULT_PASSWORD_HASH takes hashes",
    ]


def test_password_and_hash_together_are_refused(load_from):
    with pytest.raises(
        ConfigError, match="^GOMQ_DEFAULT_PASSWORD and GOMQ_DEFAULT_PASSWORD_HASH are both set"
    ):
        load_from(environment={"GOMQ_DEFAULT_PASSWORD": "x", "GOMQ_DEFAULT_PASSWORD_HASH": HASH})


def test_password_in_a_file_is_kept_as_a_hash(load_from, tmp_path):
    file = tmp_path / "password"
    file.write_text(" a-Secret word \n")

    settings, warnings = load_from(environment={"GOMQ_DEFAULT_PASSWORD_FILE": str(file)})

    assert salted_hash.verify(" a-Secret word ", settings.default_password_hash)
    assert warnings == []


@pytest.mark.parametrize("content, text", [
    (None, "^cannot read .*password: No such file"), (b"\xff", "^cannot read .*password: not UTF-8 text"),
    (b"\n", "^GOMQ_DEFAULT_PASSWORD_FILE: .*password must hold one line, the password"),
    (b"one\ntwo\n", "must hold one line"),
])
def test_file_without_a_password_is_refused_and_its_content_not_told(load_from, tmp_path, content, text):
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ConfigError, match=text) as caught:
        load_from(environment={"GOMQ_DEFAULT_PASSWORD_FILE": str(file)})
    assert "two" not in str(caught.value)


@pytest.mark.parametrize("other", ["GOMQ_DEFAULT_PASSWORD", "GOMQ_DEFAULT_PASSWORD_HASH"])
def test_password_in_a_file_and_another_one_are_refused(load_from, other):
    with pytest.raises(ConfigError, match="are both set"):
        load_from(environment={"GOMQ_DEFAULT_PASSWORD_FILE": "/nowhere", other: HASH})


@pytest.mark.parametrize("wrong", ["hunter2-Secret", HASH[:-4], "$2b$10$hunter2-Secret", "\u00fc" * 48])
@pytest.mark.parametrize("place, given", [
    ("GOMQ_DEFAULT_PASSWORD_HASH", lambda wrong: {"environment": {"GOMQ_DEFAULT_PASSWORD_HASH": wrong}}),
    ("LAVINMQ_DEFAULT_PASSWORD", lambda wrong: {"environment": {"LAVINMQ_DEFAULT_PASSWORD": wrong}}),
    ("--default-password-hash", lambda wrong: {"flags": ("--default-password-hash", wrong)}),
    (
        "gomq.ini:2: default_password_hash",
        lambda wrong: {"ini": f"[main]\ndefault_password_hash = {wrong}\n"},
    ),
    ("gomq.ini:2: default_password", lambda wrong: {"ini": f"[main]\ndefault_password = {wrong}\n"}),
])
def test_what_is_no_hash_is_named_by_its_place_and_not_repeated(load_from, wrong, place, given):
    given = given(wrong)

    with pytest.raises(ConfigError) as caught:
        load_from(*given.pop("flags", ()), **given)

    assert f"{place}: what is given is not a password hash" in str(caught.value)
    assert wrong not in str(caught.value)


def test_bcrypt_hash_is_one(load_from):
    bcrypted = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"

    assert load_from("--default-password-hash", bcrypted)[0].default_password_hash == bcrypted


@pytest.mark.parametrize("ini, complaint", [
    ("[main]\ndata_dir =\n", "gomq.ini:2: data_dir: '' is not a folder's path: it is empty"),
    ("[main]\nlog_file = a\0b\n", "gomq.ini:2: log_file: 'a\\x00b' is not a text without a NUL"),
])
def test_paths_that_no_system_call_takes_are_refused_at_once(load_from, ini, complaint):
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        load_from(ini=ini)


def test_line_without_its_equals_sign_does_not_show_what_may_be_a_password(load_from):
    with pytest.raises(ConfigError) as caught:
        load_from(ini="[main]\ndefault_password_hash hunter2-Secret\n")

    assert str(caught.value).endswith("gomq.ini:2: 'default_password_hash...' is not a key = value line")
