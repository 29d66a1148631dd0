"""The table of options, and that what is shown to operators says the same."""
import re

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


def test_shipped_file_loads_without_a_word():
    settings, warnings = load(flag_parser().parse_args(["--config", str(INI)]), {})

    assert warnings == []
    assert settings.origins == {}


def test_guide_shows_key_default_flags_and_environment():
    rows = {}
    for section, text in guide_sections():
        for line in text.splitlines():
            if line.startswith("| `"):
                key, *cells = [cell.strip() for cell in line.strip("|").split(" |")]
                rows[section, key.strip("`")] = cells

    assert rows == {
        (option.section, option.key): [
            f"`{shown}`" if (shown := option.kind.show(option.default)) else "",
            " ".join(f"`{flag}`" for flag in option.flags),
            " ".join(f"`GOMQ_{name}`" for name in option.environment),
            option.pending or option.help,
        ]
        for option in OPTIONS
    }


def test_default_survives_being_written_and_read():
    assert [option.key for option in OPTIONS if option.kind.parse(option.kind.show(option.default)) != option.default] == []


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
