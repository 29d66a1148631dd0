"""/api/settings: shows the broker's settings, and changes some until the next reload or start. Specific to
gomq-py.
"""
from logging import INFO

from flask import Blueprint

from gomq_py.broker.signals import audit_log
from gomq_py.config.settings import BY_ATTRIBUTE, OPTIONS, complaint
from gomq_py.http.answers import body, json_answer, no_content, node
from gomq_py.http.errors import BadRequest, NoSuchObject
from gomq_py.http.login import ADMINISTRATOR, access
from gomq_py.observability import log

blueprint = Blueprint("settings", __name__)
ORIGIN = "management API"


@blueprint.get("/api/settings")
@access(ADMINISTRATOR)
def list_settings():
    """Return every setting: its section and key, its value as text, and its origin, such as ``gomq.ini:12``
    or ``default``. Secrets are asterisks.
    """
    settings = node().settings
    return json_answer([
        {
            "section": option.section, "name": option.attribute, "key": option.key,
            "value": option.kind.show(getattr(settings, option.attribute)),
            "origin": settings.origin(option.attribute),
        }
        for option in OPTIONS])


@blueprint.put("/api/settings/<name>")
@access(ADMINISTRATOR)
def put_setting(name):
    """Set an adjustable setting to ``value``, at once. The next reload or start sets it to the value in the
    configuration again.
    """
    if name not in BY_ATTRIBUTE:
        raise NoSuchObject(f"no such setting: {name}")
    option, given = BY_ATTRIBUTE[name], body(required=("value",))["value"]
    if not option.adjustable:
        adjustable = ", ".join(one.attribute for one in OPTIONS if one.adjustable)
        raise BadRequest(f"{name} is set in the configuration; set here are {adjustable}")
    try:
        value = option.kind.check("" if given is None else given)  # "None" reads as a level of the log
    except ValueError as error:
        raise BadRequest(complaint(option, name, given, error)) from None
    settings = node().settings
    change = (name, *(option.kind.show(one) for one in (getattr(settings, name), value)))
    was_told = audit_log.LOG.isEnabledFor(INFO)  # the level changes now: at least one of the two tells
    if was_told:
        _tell(change)
    settings.set(name, value, ORIGIN)
    log.set_level(settings.log_level)
    if not was_told:
        _tell(change)
    node().broker.resource_watch.look_now()
    return no_content()


def _tell(change):
    audit_log.LOG.info("setting %s: %s -> %s by %s", *change, audit_log.told(node().broker.events.actor))
