"""Shovel: keeps the definition, state and link of a shovel, and describes it for operators. The supervisor
owns, starts and stops the Shovel. Its link moves the messages.
"""
import time

from gomq_py.broker.policies.parameters import WAITS
from gomq_py.links.uris import without_login
from gomq_py.observability.secrets import without_passwords
from gomq_py.shovel.definition import Definition, DefinitionError, with_vhost

DYNAMIC, STATIC = "dynamic", "static"
# States besides those of a link, which are STARTING, RUNNING, STOPPED, TERMINATED and ERROR.
PAUSED, WAITING = "paused", "waiting"
STARTING, RUNNING, STOPPED, TERMINATED, ERROR = "starting", "running", "stopped", "terminated", "error"
STATES = (STARTING, RUNNING, STOPPED, TERMINATED, ERROR, PAUSED, WAITING)
# Longest error text shown: it may come from another broker.
ERROR_CHARACTERS = 500


class NoVHost:
    """Stand-in for a virtual host that the configuration names for a shovel and that does not exist."""

    is_gone = True

    def __init__(self, name):
        self.name = name
        self.notes = {}


class Shovel:
    """One shovel: its definition, state and link. ``vhost``: a VHost or NoVHost. ``by``: name of the user who
    set the shovel.

        value      the definition as given, decoded JSON
        fault      why the shovel cannot run, as text, or None
        link       None until the shovel is started
        has_run    the shovel existed at boot, or has been running since it was set: if a queue or
                   exchange is missing, the shovel waits instead of failing
    """

    def __init__(self, vhost, name, type_, value, by, is_waiting=False):
        self.vhost = vhost
        self.name = name
        self.type = type_
        self.value = value
        self.by = by
        self.definition = None
        self.fault = None
        self.link = None
        self.is_of_stream = False
        self.is_administrators = False  # whether an administrator had set it at the start
        self.has_run = False
        self.is_about_to_start = False  # starts once the previous link has ended
        self.is_paused = False
        self.is_waiting = is_waiting
        self.changed_at_s = time.time()
        self.told = (None, "")  # (state, error) of the last report
        try:
            self.definition = Definition(value)
        except DefinitionError as error:  # an earlier version accepted it
            self.fault = str(error)
        except Exception as error:  # no stored value keeps a broker from booting
            self.fault = f"this makes no shovel: {type(error).__name__}: {error}"

    def __repr__(self):
        return f"<Shovel {self.name!r} in {self.vhost.name!r}: {self.state}>"

    @property
    def key(self):
        """(vhost name, shovel name), which identifies the shovel."""
        return self.vhost.name, self.name

    @property
    def state(self):
        """The shovel's state, one of STATES."""
        if self.is_waiting:
            return WAITING
        if self.is_paused:
            return PAUSED
        if self.fault is not None:
            return ERROR
        if self.link is None:
            return STARTING if self.is_about_to_start else STOPPED
        return self.link.status.state

    @property
    def error(self):
        """The last error, or why the shovel does not run, as text without passwords; "" if all is well."""
        if self.is_waiting:
            return WAITS
        text = self.fault or (self.link.status.error if self.link is not None else "") or ""
        return without_passwords(text)[:ERROR_CHARACTERS]

    @property
    def why_kept(self):
        """Reason why the shovel cannot be deleted, as text; None if it can."""
        if self.type != STATIC:
            return None
        return (
            f"shovel '{self.name}' is in the configuration file, which owns it: take the section "
            f"[shovel:{self.name}] away there and start the broker anew, or stop the shovel with "
            "pause_shovel")

    def changed(self):
        """Record the present time as that of the last change of state."""
        self.changed_at_s = time.time()

    def described(self):
        """Return a description for operators: a dict with RabbitMQ's keys where RabbitMQ has them."""
        state, status = self.state, self.link.status if self.link is not None else None
        shown = {
            "name": self.name, "vhost": self.vhost.name, "type": self.type, "state": state,
            "timestamp": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.changed_at_s)),
            "error": self.error, **_of_definition(self.definition, self.vhost.name),
            "blocked_status": "blocked" if status is not None and status.blocked else "running",
        }
        if status is not None:
            for key, uri in (("src_uri", status.source_uri), ("dest_uri", status.target_uri)):
                if uri:
                    shown[key] = without_login(uri)
        for name in ("moved", "unconfirmed", "refused", "set_aside", "reconnects"):
            shown[name] = getattr(status, name) if status is not None else 0
        shown["rate"] = float(status.rate) if status is not None and state == RUNNING else 0.0
        if state in (TERMINATED, ERROR):
            shown["reason"] = shown["error"]
        return shown


def _of_definition(definition, vhost_name):
    if definition is None:
        return {"src_uri": "", "dest_uri": ""}
    shown = {
        "src_uri": without_login(with_vhost(definition.src_uri[0], vhost_name)),
        "dest_uri": without_login(with_vhost(definition.dest_uri[0], vhost_name)),
        "src_protocol": definition.src_protocol,
        "dest_protocol": "http" if definition.is_webhook else definition.dest_protocol,
        "ack_mode": definition.ack_mode, "prefetch_count": definition.src_prefetch_count,
        "delete_after": "never" if definition.src_delete_after is None else definition.src_delete_after,
    }
    for key, value in (
        ("src_queue", definition.src_queue), ("src_exchange", definition.src_exchange),
        ("src_exchange_key", definition.src_exchange_key if definition.src_exchange else None),
        ("dest_queue", definition.dest_queue), ("dest_exchange", definition.dest_exchange),
        ("dest_exchange_key", definition.dest_exchange_key),
    ):
        if value is not None:
            shown[key] = value
    return shown


def status_event(shovel):
    """Return the content of the event shovel.worker.status, as a dict."""
    shown = shovel.described()
    return {
        "name": shovel.name, "vhost": shovel.vhost.name, "type": shovel.type, "status": shovel.state,
        "src_uri": shown["src_uri"], "dest_uri": shown["dest_uri"], "error": shovel.error,
        "blocked_status": shown["blocked_status"],
    }


def removed_event(shovel):
    return {"name": shovel.name, "vhost": shovel.vhost.name, "type": shovel.type}
