"""/api/parameters, /api/global-parameters: shows, sets and deletes parameters, the values that components
such as shovels keep in the definitions. Passwords are hidden.
"""
from flask import Blueprint, g

from gomq_py.broker.policies.policy import POLICY
from gomq_py.global_names import CLUSTER_ID
from gomq_py.http.answers import body, json_answer, no_content, node, sliced
from gomq_py.http.errors import BadRequest, NoSuchObject, validation_failed
from gomq_py.http.entities import find_vhost, vhosts_named, writable_vhost
from gomq_py.http.login import ADMINISTRATOR, POLICYMAKER, access, require_tag, set_by
from gomq_py.http.paging import listing
from gomq_py.observability.secrets import restored, shown, without_passwords

blueprint = Blueprint("parameters", __name__)
SHOVEL = "shovel"


def _described(vhost, component, name):
    """Return a parameter as JSON; None if missing. One without effect also has ``state`` and ``reason``."""
    there = vhost.parameters
    if (component, name) not in there:
        return None
    found = {
        "vhost": vhost.name, "component": component, "name": name, "value": shown(there[component, name])}
    condition = node().broker.parameters.condition(vhost, component, name)
    return found if condition is None else {
        **found, "state": condition[0], "reason": without_passwords(condition[1])}


@blueprint.get("/api/parameters")
@blueprint.get("/api/parameters/<component>")
@blueprint.get("/api/parameters/<component>/<vhost>")
@access(POLICYMAKER)
def list_parameters(component=None, vhost=None):
    """Return the parameters of one or all components, in one or all vhosts. Policies are at /api/policies."""
    return listing(sliced([
        (there, owner, name) for there in vhosts_named(vhost) for owner, name in there.parameters
        if owner != POLICY and component in (None, owner)
    ], lambda one: _described(*one)))


@blueprint.get("/api/parameters/<component>/<vhost>/<name>")
@access(POLICYMAKER)
def get_parameter(component, vhost, name):
    """Return one parameter."""
    there = find_vhost(vhost)
    if (component, name) not in there.parameters:
        raise NoSuchObject()
    return json_answer(_described(there, component, name))


@blueprint.put("/api/parameters/<component>/<vhost>/<name>")
@access(POLICYMAKER)
def put_parameter(component, vhost, name):
    """Set the parameter to ``value``, which its component checks. A password sent back as asterisks keeps its
    value, for administrators and for the user who set the parameter.
    """
    _may_change(component)
    there = writable_vhost(vhost)
    if component == POLICY:
        raise BadRequest("policies are set at /api/policies")
    for why in node().broker.parameters.idle_parts(component, None).values():
        raise BadRequest(validation_failed(f"component {component} not found: {why}"))
    existed, before = (component, name) in there.parameters, there.parameters.get((component, name))

    def put(value):
        meant = restored(value, before)
        if meant != value and not _knows_secrets(there, component, name):
            raise ValueError(
                "the secrets in it are given as they are shown: only administrators and the user who set it"
                " may keep them so, others give them anew")
        node().broker.parameters.set(there, component, name, meant, set_by())

    set_value(put, validation_failed)
    return no_content(204 if existed else 201)


def _knows_secrets(vhost, component, name):
    by = set_by()
    return ADMINISTRATOR in g.tags or by is not None and by == vhost.set_by.get((component, name))


@blueprint.delete("/api/parameters/<component>/<vhost>/<name>")
@access(POLICYMAKER)
def delete_parameter(component, vhost, name):
    """Delete the parameter."""
    _may_change(component)
    there = find_vhost(vhost)
    if component == POLICY or not node().broker.parameters.clear(there, component, name):
        shovels = node().shovels if component == SHOVEL else None
        shovel = shovels.find(there.name, name) if shovels is not None else None
        if shovel is not None and shovel.why_kept is not None:  # a shovel of the configuration file
            raise BadRequest(shovel.why_kept)
        raise NoSuchObject()
    return no_content()


def _may_change(component):
    if node().broker.parameters.is_administrators_only(component):
        require_tag(ADMINISTRATOR)


@blueprint.get("/api/global-parameters")
@access(POLICYMAKER)
def list_global_parameters():
    """Return the global parameters, which hold for the whole broker."""
    return listing([_shown(name, value) for name, value in _global().items()])


def _global():
    return {CLUSTER_ID: node().broker.cluster_id, **node().broker.parameters.global_}


@blueprint.get("/api/global-parameters/<name>")
@access(POLICYMAKER)
def get_global_parameter(name):
    """Return one global parameter."""
    values = _global()
    if name not in values:
        raise NoSuchObject()
    return json_answer(_shown(name, values[name]))


def _shown(name, value):
    """Return a global parameter as a dict. Hides values with a secret's name, such as ``password``."""
    return {"name": name, "value": shown({name: value})[name]}


@blueprint.put("/api/global-parameters/<name>")
@access(ADMINISTRATOR)
def put_global_parameter(name):
    """Set a global parameter, such as the cluster's name or the vhosts for MQTT clients."""
    values = node().broker.parameters.global_
    existed = name in values
    before = {name: values[name]} if existed else {}
    set_value(lambda value: node().broker.parameters.set_global(name, restored({name: value}, before)[name]))
    return no_content(204 if existed else 201)


@blueprint.delete("/api/global-parameters/<name>")
@access(ADMINISTRATOR)
def delete_global_parameter(name):
    """Delete the global parameter."""
    if not node().broker.parameters.clear_global(name):
        raise NoSuchObject()
    return no_content()


def set_value(put, framed=str):
    """Call ``put`` with the body's ``value``. If it raises ValueError, raise BadRequest(framed(error))."""
    value = body(required=("value",))["value"]
    try:
        put(value)
    except ValueError as error:
        raise BadRequest(framed(error)) from None
