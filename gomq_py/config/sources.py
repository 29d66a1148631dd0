"""Reads each setting from the flags, else the environment, else the INI file, else the defaults.

The result is one ``Settings``. An operator's mistake is a ``ConfigError``, whose text is one line that names
the flag, variable or line of the file. A harmless mistake is a warning for the log.
"""
import argparse
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from gomq_py import salted_hash
from gomq_py.config import dispatchd, ini
from gomq_py.config.kinds import BOOLEAN, PASSWORD_HASH
from gomq_py.config.settings import (
    BY_KEY, BY_KEY_OR_ALIAS, ENVIRONMENT_PREFIXES, LAVINMQ_PASSWORD_HASH, OPTIONS, PASSWORD_FILE,
    PASSWORD_HASH_OF_IT, PLAIN_PASSWORD, SECTION_ALIASES, SECTIONS, SHOVEL_PREFIX, SNI_KEYS, SNI_PREFIX,
    SNI_PROTOCOLS, Option, Settings, complaint,
)

DEFAULT_FOLDER = "/etc"
FILE_NAME = "gomq.ini"
# systemd's variables have no prefix (StateDirectory=, ConfigurationDirectory=).
SYSTEMD_STATE, SYSTEMD_CONFIGURATION = "STATE_DIRECTORY", "CONFIGURATION_DIRECTORY"
_OTHER_NAMES = {"data_dir": (SYSTEMD_STATE,), "default_password_hash": (LAVINMQ_PASSWORD_HASH,)}
BIND_ALL = ("amqp_bind", "mqtt_bind", "http_bind")


class ConfigError(Exception):
    """A setting is unusable. The text is one line for the operator."""


class _Given(argparse.Action):
    """argparse action: keeps (flag as the operator spelled it, text), so that errors can name the flag."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        text = self.const if values in ([], None) else values
        # "-l --": until Python 3.13 argparse takes the dashes for the value's place, later for the value
        if text in (None, "--"):
            parser.error(f"argument {option_string}: expected one argument")
        setattr(namespace, self.dest, (option_string, text))


class _Text(argparse.Action):
    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        if not isinstance(values, str) or values == "--":  # as above
            parser.error(f"argument {option_string}: expected one argument")
        setattr(namespace, self.dest, values)


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises ConfigError, and looks up the terminal's width only to print help."""

    # argparse itself asks at every flag, and for that imports compression libraries (0.2 MB).
    def __init__(self, **options: Any):
        super().__init__(formatter_class=partial(argparse.HelpFormatter, width=80), **options)

    def format_help(self) -> str:
        self.formatter_class = argparse.HelpFormatter
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def flag_parser() -> argparse.ArgumentParser:
    """Return the parser of ``gomq-py``'s command line. An option may have several flags."""
    parser = _Parser(
        prog="gomq-py", description="A message broker: AMQP 0-9-1 on one durable store.", allow_abbrev=False
    )
    parser.add_argument(
        "-c", "--config", metavar="FILE", action=_Text,
        help="INI file (default: gomq.ini in $GOMQ_CONFIGURATION_DIRECTORY, else /etc/gomq.ini)")
    parser.add_argument(
        "-b", "--bind", metavar="ADDRESS", action=_Text,
        help="address to listen on, for all protocols but the metrics",
    )
    parser.add_argument("-d", "--debug", action="store_true", help="same as --log-level debug")
    parser.add_argument("-v", "--version", action="store_true", help="print the version and leave")
    parser.add_argument(
        "--build-info", action="store_true",
        help="print version, interpreter and whether the hot modules are compiled, and leave",
    )
    for option in OPTIONS:
        _add_flags(parser, option)
    return parser


def _add_flags(parser: argparse.ArgumentParser, option: Option) -> None:
    if not option.flags:
        return
    help_text = option.help
    more: dict[str, Any] = {"metavar": option.metavar}
    if option.kind is BOOLEAN:
        off = option.flags[0].startswith("--no-")
        more = {"nargs": 0, "const": "false"} if off else {"nargs": "?", "const": "true", "metavar": "yes|no"}
        if off:
            help_text = f"Turn off what is on: {help_text[0].lower()}{help_text[1:]}"
    elif option.default not in ("", None):
        help_text = f"{help_text} (default: {option.kind.show(option.default)})"
    if option.pending:
        help_text = f"{help_text} (no effect yet)"
    parser.add_argument(
        *option.flags, dest=option.attribute, action=_Given, help=help_text.replace("%", "%%"), **more
    )


def load(arguments: argparse.Namespace, environment: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Read the settings from the parsed flags, the environment, and the configuration file (see
    ``config_path``). Returns (Settings, warnings for the log, a list of texts). Raises ConfigError.
    """
    settings, warnings = Settings(), []
    path = config_path(arguments.config, environment)
    if path is not None:
        warnings += read_file(settings, path)
    if _is_hash(environment.get(PLAIN_PASSWORD, "")):
        warnings.append(
            f"{PLAIN_PASSWORD} looks like a hash, and is taken for the password itself: "
            f"{PASSWORD_HASH_OF_IT} takes hashes"
        )
    _take_environment(settings, _with_hash(environment))
    _take_flags(settings, arguments)
    missing = settings.missing()
    if missing is not None:
        raise ConfigError(missing)
    return settings, warnings + pending_warnings(settings)


def _with_hash(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment in which the default user's password is a hash. The variable that has the
    password, or the name of its file, is left out. Raises ConfigError if more than one of password, file and
    hash is set, or if the file has no password.
    """
    names = [name for name in (PLAIN_PASSWORD, PASSWORD_FILE, PASSWORD_HASH_OF_IT) if environment.get(name)]
    if len(names) > 1:
        raise ConfigError(f"{' and '.join(names)} are both set: give the one that is meant")
    if not names or names == [PASSWORD_HASH_OF_IT]:
        return environment
    (name,) = names
    password = environment[name] if name == PLAIN_PASSWORD else _password_in(environment[name])
    hashed = {key: value for key, value in environment.items() if key != name}
    return {**hashed, PASSWORD_HASH_OF_IT: salted_hash.make(password)}


def _password_in(path: str) -> str:
    """Return the password in a file, without the line's end. Raises ConfigError."""
    password = _text_of(Path(path)).rstrip("\r\n")
    if not password or "\n" in password:
        raise ConfigError(f"{PASSWORD_FILE}: {path} must hold one line, the password")
    return password


def _is_hash(text: str) -> bool:
    try:
        return bool(PASSWORD_HASH.parse(text))
    except ValueError:
        return False


def of_this_machine(environment: Mapping[str, str]) -> Settings:
    """Return the Settings of a broker run here without flags. Ignores wrong or unreadable configuration."""
    settings = Settings()
    try:
        path = config_path(None, environment)
        if path is not None:
            read_file(settings, path)
    except ConfigError:
        settings = Settings()
    with suppress(ConfigError):
        _take_environment(settings, environment)
    return settings


def config_path(given: str | None, environment: Mapping[str, str]) -> Path | None:
    """Return the file to read: --config (``given``), else an existing gomq.ini in its folder, else None."""
    if given:
        return Path(given)
    names = [prefix + SYSTEMD_CONFIGURATION for prefix in ENVIRONMENT_PREFIXES] + [SYSTEMD_CONFIGURATION]
    folder = next((environment[name] for name in names if environment.get(name)), DEFAULT_FOLDER)
    path = Path(folder, FILE_NAME)
    return path if path.exists() else None


def read_file(settings: Settings, path: Path) -> list[str]:
    """Set the values of an INI file, or of dispatchd's JSON file, in ``settings``. Returns warnings for the
    log, such as about unknown keys. Raises ConfigError if the file is unreadable or a value is wrong.
    """
    text = _text_of(path)
    if path.suffix == ".json" or text.lstrip()[:1] == "{":
        try:
            return dispatchd.read(settings, text, str(path))
        except dispatchd.DispatchdError as error:
            raise ConfigError(str(error)) from error
    try:
        entries = ini.parse(text, str(path))
    except ini.IniError as error:
        raise ConfigError(str(error)) from error
    for section, line in ini.sections(text):
        _check_section(section, f"{path}:{line}")
    warnings: list[str] = []
    for entry in entries:
        warnings += _take_entry(settings, entry)
    return warnings


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors put a mark in front
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"cannot read {path}: {reason}") from error


def _check_section(section: str, place: str) -> None:
    known = (
        section in SECTIONS or section in SECTION_ALIASES
        or any(section.startswith(prefix) and section != prefix for prefix in (SNI_PREFIX, SHOVEL_PREFIX))
    )
    if not known:
        raise ConfigError(
            f"{place}: unknown section [{section}]; there are {', '.join(SECTIONS)}, {SNI_PREFIX}HOST and "
            f"{SHOVEL_PREFIX}NAME"
        )


def _take_entry(settings: Settings, entry: ini.Entry) -> list[str]:
    """Set the option of one INI line; return warnings. An option's own key overrides deprecated aliases."""
    if entry.section.startswith(SNI_PREFIX):
        return _take_sni(settings, entry)
    if entry.section.startswith(SHOVEL_PREFIX):
        return _take_shovel(settings, entry)
    section = SECTION_ALIASES.get(entry.section, entry.section)
    option = BY_KEY_OR_ALIAS.get((section, entry.key))
    if option is None:
        return [f"{entry.place}: unknown key {entry.key!r} in section [{entry.section}] is ignored"]
    value = _parse(option, entry.value, f"{entry.place}: {entry.key}")
    if (section, entry.key) in BY_KEY:
        settings.set(option.attribute, value, entry.place)
        return []
    if option.attribute not in settings.origins:
        settings.set(option.attribute, value, entry.place)
    return [
        f"{entry.place}: {entry.key} in section [{entry.section}] is deprecated, use {option.key} in "
        f"[{option.section}]"
    ]


def _take_sni(settings: Settings, entry: ini.Entry) -> list[str]:
    key = entry.key
    for prefix in SNI_PROTOCOLS:
        key = key.removeprefix(prefix)
    if key not in SNI_KEYS:
        return [f"{entry.place}: unknown key {entry.key!r} in section [{entry.section}] is ignored"]
    host = entry.section.removeprefix(SNI_PREFIX).strip().lower()
    settings.sni.setdefault(host, {})[entry.key] = _parse(
        BY_KEY["main", key], entry.value, f"{entry.place}: {entry.key}"
    )
    return []


def _take_shovel(settings: Settings, entry: ini.Entry) -> list[str]:
    shovel = settings.shovels.setdefault(entry.section.removeprefix(SHOVEL_PREFIX).strip(), {})
    if entry.key in shovel:
        raise ConfigError(f"{entry.place}: {entry.key} is given twice in section [{entry.section}]")
    shovel[entry.key] = entry.value
    return []


def _take_environment(settings: Settings, environment: Mapping[str, str]) -> None:
    for option in OPTIONS:
        names = [prefix + name for name in option.environment for prefix in ENVIRONMENT_PREFIXES]
        names += _OTHER_NAMES.get(option.attribute, ())
        name = next((name for name in names if environment.get(name)), None)
        if name is not None:
            settings.set(option.attribute, _parse(option, environment[name], name), name)


def _take_flags(settings: Settings, arguments: argparse.Namespace) -> None:
    if arguments.bind is not None:
        for attribute in BIND_ALL:
            settings.set(attribute, arguments.bind.strip(), "--bind")
    if arguments.debug:
        settings.set("log_level", "debug", "--debug")
    for option in OPTIONS:
        given = getattr(arguments, option.attribute, None)
        if given is not None:
            flag, text = given
            settings.set(option.attribute, _parse(option, text, flag), flag)


def _parse(option: Option, text: str, place: str) -> Any:
    try:
        return option.kind.parse(text)
    except ValueError as error:
        raise ConfigError(complaint(option, place, text, error)) from None


def pending_warnings(settings: Settings) -> list[str]:
    """Return warnings for the log about options that are set but have no effect in this version."""
    # Not about listeners' addresses that come from ``--bind`` alone.
    return [
        f"{settings.origin(option.attribute)}: {option.key} in [{option.section}] has no effect yet: this "
        f"version is without {option.pending}"
        for option in OPTIONS
        if option.pending and settings.origins.get(option.attribute, "--bind") != "--bind"
        and not option.is_off(getattr(settings, option.attribute))
    ]
