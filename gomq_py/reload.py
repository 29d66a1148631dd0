"""Reload: reads the configuration again and applies the options that can change while the broker runs.

Used by the launcher. All steps that can fail come first: parsing, certificates, the log file. So a bad file
leaves the old configuration in force, with a line in the log. Steps that read files run in a thread. The
table of options (config.settings) says which options take effect at run time; the log names changed options
that need a restart.
"""
from collections.abc import Callable
from typing import Any

from gomq_py.config.settings import OPTIONS, Option, Settings
from gomq_py.config.sources import ConfigError
from gomq_py.hub.threads import in_thread
from gomq_py.net.listener import BindError
from gomq_py.observability import log

LOG = log.logger("reload")


class Reloader:
    """Reloads one broker's configuration. Changes ``settings`` in place: all parts of the broker share it."""

    def __init__(
        self, settings: Settings, reread: Callable[[], tuple[Settings, list[str]]], doors: Any,
        applied: Callable[[], None],
    ):
        """``reread()`` returns the new (settings, warnings), or raises ConfigError. ``doors``: the Doors.
        ``applied()`` is called after options have changed.
        """
        self._settings = settings
        self._reread = reread
        self._doors = doors
        self._applied = applied

    def reload(self) -> bool:
        """Read and apply the configuration. Returns False if an error has left the old configuration in
        force. Reopens the log file in both cases. May switch greenlets.
        """
        try:
            new, warnings = in_thread(self._reread)
            contexts = in_thread(self._doors.prepare, new)
            handler = log.open_handler(new.log_format, new.log_file)
        except (ConfigError, BindError) as error:
            return self._keep(str(error))
        except OSError as error:
            return self._keep(f"cannot write the log to {new.log_file}: {error.strerror}")
        log.use(handler)
        for warning in warnings:
            LOG.warning("%s", warning)
        self._apply(new, contexts)
        return True

    def _keep(self, why: str) -> bool:
        self.reopen_log()
        LOG.error("the old configuration stays: %s", why)
        return False

    def reopen_log(self) -> None:
        """Open the log file again by its name, because the old file may have been renamed (rotated)."""
        settings = self._settings
        try:
            log.use(log.open_handler(settings.log_format, settings.log_file))
        except OSError as error:
            LOG.error(
                "cannot open the log %s anew, the old file goes on: %s", settings.log_file, error.strerror
            )

    def _apply(self, new: Settings, contexts: dict[str, Any]) -> None:
        settings = self._settings
        changed, waiting = differences(settings, new)
        told = [f"{option.key}: {_shown(option, settings)} -> {_shown(option, new)}" for option in changed]
        for option in changed:
            setattr(settings, option.attribute, getattr(new, option.attribute))
            settings.origins.pop(option.attribute, None)
            if option.attribute in new.origins:
                settings.origins[option.attribute] = new.origins[option.attribute]
        settings.sni = new.sni
        self._doors.apply(settings, contexts)
        log.set_level(settings.log_level)
        self._applied()
        if contexts:
            told.append("certificates read anew")
        LOG.info("configuration reloaded: %s", "; ".join(told) or "no change")
        unapplied = [f"{option.key} in [{option.section}]" for option in waiting]
        if new.shovels != settings.shovels:
            unapplied.append("sections [shovel:NAME]")
        if unapplied:
            LOG.warning("these changes need a restart: %s", ", ".join(unapplied))


def differences(old: Settings, new: Settings) -> tuple[list[Option], list[Option]]:
    """Return the options whose values differ: ([effective at once], [effective after a restart])."""
    changed, waiting = [], []
    for option in OPTIONS:
        before, after = getattr(old, option.attribute), getattr(new, option.attribute)
        if before == after:
            continue
        # The first certificate opens ports and the last one closes them.
        opens_or_closes = option.attribute == "tls_cert" and not (before and after)
        (changed if option.reloadable and not opens_or_closes else waiting).append(option)
    return changed, waiting


def _shown(option: Option, settings: Settings) -> str:
    return option.kind.show(getattr(settings, option.attribute)) or "nothing"
