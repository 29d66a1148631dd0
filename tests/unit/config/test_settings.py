"""The table of options, and that what is shown to operators says the same."""
import re
from pathlib import Path

import pytest

from gomq_py.config.kinds import Keepalive
from gomq_py.config.settings import OPTIONS, SNI_KEYS, Settings
from gomq_py.config.sources import flag_parser, load
from tests.unit.source_tree import ROOT

INI = ROOT / "etc" / "gomq.ini"
GUIDE = ROOT / "docs" / "configuration.md"


def shown_in_ini():
    """{(section, key): value} of etc/gomq.ini with its comment signs taken off."""
    shown, section = {}, ""
    for line in INI.read_text().splitlines():
        if header := re.fullmatch(r";?\[(.+)\]", line):
            section = header[1]
        elif entry := re.fullmatch(r";(\w+) =(.*)", line):
            shown[section, entry[1]] = entry[2].strip()
    return shown


def guide_sections():
    """(section, text) pairs of docs/configuration.md."""
    parts = re.split(r"\n## \[([\w:]+)\]\n", GUIDE.read_text())[1:]
    return list(zip(parts[::2], parts[1::2]))


def test_shipped_file_shows_every_key_with_its_default():
    shown = shown_in_ini()

    assert {place: value for place, value in shown.items() if not place[0].startswith("sni:")} == {
        (option.section, option.key): option.kind.show(option.default) for option in OPTIONS
    }
    assert {key for section, key in shown if section.startswith("sni:")} == set(SNI_KEYS)


def test_shipped_file_says_of_each_key_what_it_does_and_whether_it_works():
    """Under the line "without effect" are the keys that have none, and no others;
    the comment is the option's own.
    """
    section, works, comment, wrong = "", True, [], []
    options = {(option.section, option.key): option for option in OPTIONS}
    for line in INI.read_text().splitlines():
        if header := re.fullmatch(r";?\[(.+)\]", line):
            section, works = header[1], True
        elif line == "; -- without effect in this version --":
            works = False
        elif (
            (entry := re.fullmatch(r";(\w+) =(.*)", line))
            and (option := options.get((section, entry[1]))) is not None
        ):
            if (not option.pending) != works or " ".join(comment) != option.help:
                wrong.append((section, entry[1], " ".join(comment)))
        comment = [*comment, line.removeprefix("; ")] if line.startswith("; ") else []

    assert wrong == []


def test_shipped_file_loads_without_a_word():
    settings, warnings = load(flag_parser().parse_args(["--config", str(INI)]), {})

    assert warnings == []
    assert settings.origins == {}


def test_guide_shows_key_default_flags_and_environment_and_whether_it_works():
    rows = {}
    for section, text in guide_sections():
        works = True
        for line in text.splitlines():
            if line.startswith("| key |"):
                works = not line.endswith("| waits for |")
            if line.startswith("| `"):
                key, *cells = [cell.strip() for cell in line.strip("|").split(" |")]
                rows[section, key.strip("`")] = [works, *cells]

    assert rows == {
        (option.section, option.key): [
            not option.pending,
            f"`{shown}`" if (shown := option.kind.show(option.default)) else "",
            " ".join(f"`{flag}`" for flag in option.flags),
            " ".join(f"`GOMQ_{name}`" for name in option.environment),
            option.pending or option.help,
        ]
        for option in OPTIONS
    }


def test_default_survives_being_written_and_read():
    assert [
        option.key
        for option in OPTIONS if option.kind.parse(option.kind.show(option.default)) != option.default
    ] == []


def test_help_shows_every_flag():
    text = flag_parser().format_help()

    assert [flag for option in OPTIONS for flag in option.flags if flag not in text] == []


def test_values_can_be_given_by_name():
    settings = Settings(amqp_port=0, tcp_keepalive=Keepalive(1, 2, 3))

    assert settings.amqp_port == 0
    assert settings.origin("amqp_port") == "argument"


def test_a_name_that_is_no_option_is_refused():
    with pytest.raises(TypeError, match="no such setting: amqp_prot"):
        Settings(amqp_prot=1)
    with pytest.raises(AttributeError, match="no such setting: amqp_prot"):
        Settings().amqp_prot


def test_operators_page_lists_what_a_reload_changes():
    page = (ROOT / "docs" / "operations.md").read_text()
    listed = re.findall(r"^- `\[(\w+)\]` ((?:`\w+`,?\s+)+)", page, re.MULTILINE)

    assert {(section, key) for section, keys in listed for key in re.findall(r"`(\w+)`", keys)} == {
        (option.section, option.key) for option in OPTIONS if option.reloadable
    }


def test_values_of_python_are_held_to_the_rules_of_the_file():
    settings = Settings.checked(
        heartbeat=7, amqp_port="5673", sync=False, data_dir=Path("/data"), amqp_unix_mode=0o600,
        tcp_keepalive=None, memory_high_watermark=0.5, auth_backends=["local"],
        proxy_protocol_trusted_sources=("10.0.0.0/8",), log_level="warning", tcp_proxy_protocol=True)

    assert (settings.heartbeat, settings.amqp_port, settings.sync, settings.data_dir) == (
        7, 5673, False, "/data"
    )
    assert (settings.amqp_unix_mode, settings.tcp_keepalive, settings.memory_high_watermark) == (
        0o600, None, 0.5
    )
    assert (
        (settings.auth_backends, settings.log_level, settings.tcp_proxy_protocol) == (("local",), "warn", 2)
    )
    assert str(settings.proxy_protocol_trusted_sources[0]) == "10.0.0.0/8"


def test_every_default_passes():
    assert vars(
        Settings.checked(**{option.attribute: option.default for option in OPTIONS})
    ).keys() == vars(Settings()).keys()


WRONG = [
    None, True, -2, 0.5, -2 ** 63, 2 ** 63, 10 ** 5000, float("nan"), float("inf"), b"x", "x\0", object(),
    [1], {"a": 1}, (),
]


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_a_value_that_cannot_be_is_named_whatever_it_is(wrong):
    """By every option: taken, or a ValueError of one line;
    never another error, which would come from the middle of a boot.
    """
    for option in OPTIONS:
        try:
            settings = Settings.checked(**{option.attribute: wrong})
        except ValueError as error:
            assert (
                str(error).startswith(f"{option.attribute}: ") and "\n" not in str(error)
                and len(str(error)) < 600
            )
        else:
            value = getattr(settings, option.attribute)
            assert option.kind.parse(option.kind.show(value)) == value or option.kind.secret


@pytest.mark.parametrize("values, complaint", [
    ({"heartbeat": "x"}, "heartbeat: 'x' is not a whole number from 0 to 65535"),
    ({"heartbeat": -5}, "heartbeat: -5 is not a whole number from 0 to 65535"),
    ({"heartbeat": True}, "heartbeat: True is not a number"),
    ({"log_level": "loud"}, "log_level: 'loud' is not a log level"),
    ({"amqp_port": "abc"}, "amqp_port: 'abc' is not a port"),
    ({"tls_cert": None}, "tls_cert: None is not a path"),
    ({"sync": "perhaps"}, "sync: 'perhaps' is not a yes or no"),
    ({"default_password_hash": "hunter2"}, "default_password_hash: what is given is not a password hash"),
])
def test_complaint_about_a_value_says_what_is_wanted(values, complaint):
    with pytest.raises(ValueError, match=re.escape(complaint)):
        Settings.checked(**values)


def test_name_that_is_nearly_right_is_suggested():
    with pytest.raises(TypeError, match="^no such setting: heartbaet; is heartbeat meant\\?$"):
        Settings.checked(heartbaet=7)
