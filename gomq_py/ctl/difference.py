"""Difference: what an import of definitions would make, leave and not take. Two exports in, rows for the operator out; asks nobody."""

# list: the fields that name an entry
KEYS = {
    "vhosts": ("name",), "users": ("name",), "permissions": ("vhost", "user"), "topic_permissions": ("vhost", "user", "exchange"),
    "parameters": ("vhost", "component", "name"), "global_parameters": ("name",), "policies": ("vhost", "name"),
    "exchanges": ("vhost", "name"), "queues": ("vhost", "name"),
    "bindings": ("vhost", "source", "destination_type", "destination", "routing_key", "arguments"),
}
# Fields that brokers add for themselves.
_NOT_COMPARED = {"limits", "metadata", "default_queue_type", "hashing_algorithm", "internal", "type_name", "tracing", "cluster_state", "description"}
QUORUM_NOTE = "quorum: becomes a durable queue of this node, replicated with it"
MIRROR_NOTE = "mirroring keys are kept and have no effect: a node is replicated as a whole"


def difference(here, there):
    """Rows {action, kind, vhost, name, note} for each entry of ``there``: ``new``, ``same`` (left out) or ``differs``; of ``here`` none goes."""
    rows = []
    for kind, fields in KEYS.items():
        present = {_key(entry, fields): entry for entry in here.get(kind) or ()}
        for entry in there.get(kind) or ():
            if kind == "exchanges" and (not entry.get("name") or entry["name"].startswith("amq.")):
                continue
            mine = present.get(_key(entry, fields))
            changed = [] if mine is None else _changed(mine, entry)
            notes = list(_notes(kind, entry))
            if mine is not None and changed:
                notes.insert(0, "here otherwise: " + ", ".join(changed))
            if mine is None or changed or notes:
                action = "new" if mine is None else "differs" if changed else "same"
                rows.append({"action": action, "kind": kind, "vhost": entry.get("vhost", ""), "name": _name(kind, entry), "note": "; ".join(notes)})
    rows.extend({"action": "ignored", "kind": kind, "vhost": "", "name": "", "note": "a list that this broker does not know"}
                for kind, value in there.items() if isinstance(value, list) and kind not in KEYS)
    return rows


def _key(entry, fields):
    return tuple(repr(sorted(entry[field].items())) if isinstance(entry.get(field), dict) else entry.get(field) for field in fields)


def _name(kind, entry):
    if kind == "bindings":
        return f"{entry.get('source')} -> {entry.get('destination')} ({entry.get('routing_key')})"
    return entry.get("name") or entry.get("user") or ""


def _changed(mine, theirs):
    """Fields of both that differ; tags are compared as sets, in either of their forms."""
    return [field for field, value in theirs.items()
            if field in mine and field not in _NOT_COMPARED and _plain(field, mine[field]) != _plain(field, value)]


def _plain(field, value):
    if field == "tags":
        tags = value.split(",") if isinstance(value, str) else value
        return {tag.strip() for tag in tags if tag.strip()}
    if field == "apply-to":
        return str(value).replace("-", "_")
    return value


def _notes(kind, entry):
    arguments = entry.get("arguments") or {}
    if kind == "queues" and arguments.get("x-queue-type") == "quorum":
        yield QUORUM_NOTE
    if kind == "policies" and any(key.startswith("ha-") for key in entry.get("definition") or {}):
        yield MIRROR_NOTE
