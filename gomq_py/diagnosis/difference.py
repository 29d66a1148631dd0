"""Lists what an import of definitions would create, change, ignore or refuse.

Compares two exports of definitions and yields rows for the operator; sends no request to a broker.
"""
from gomq_py.global_names import NOT_IMPORTED

# list: the fields that name an entry
KEYS = {
    "vhosts": ("name",), "users": ("name",), "permissions": ("vhost", "user"),
    "topic_permissions": ("vhost", "user", "exchange"),
    "parameters": ("vhost", "component", "name"), "global_parameters": ("name",),
    "policies": ("vhost", "name"), "exchanges": ("vhost", "name"), "queues": ("vhost", "name"),
    "bindings": ("vhost", "source", "destination_type", "destination", "routing_key", "arguments"),
}
# An import leaves existing entries of these lists; in the others it replaces them.
_STAY = ("vhosts", "exchanges", "queues", "bindings")
# An import into a single vhost ignores these lists.
_NOT_IN_A_VHOST = ("vhosts", "users", "permissions", "topic_permissions", "global_parameters")
NOT_IN_A_VHOST_NOTE = "an import into one vhost leaves this list out"
# Fields that brokers add by themselves.
_NOT_COMPARED = {
    "limits", "metadata", "default_queue_type", "hashing_algorithm", "internal", "type_name", "tracing",
    "cluster_state", "description",
}
DEFAULT_VHOST = "/"
QUORUM_NOTE = "quorum: becomes a durable queue of this node, with the delivery limit of quorum queues"
MIRROR_NOTE = "mirroring keys are kept and have no effect: queues are on this node alone"
RESERVED_NOTE = "names that begin with amq. are the broker's own"
# Parameters, and keys of policies, that have the broker act by itself.
ACTING = ("shovel", "federation-upstream", "federation-upstream-set")
RUNS_NOTE = "would run at once, beside the other broker's"
NO_VHOST_NOTE = f"names no vhost: goes into {DEFAULT_VHOST}"


class Difference:
    """The differences between the broker's definitions, ``here``, and an export to import, ``there``.
    ``exchange_types``: names of the exchange types of this broker, or None if unknown.
    """

    def __init__(self, here, there, exchange_types=None, paced=iter, is_whole=True):
        """``paced(entries)``: an iterator that may pause. ``is_whole``: False for exports of one vhost."""
        self._here = here
        self._there = there
        self._exchange_types = exchange_types
        self._paced = paced
        self._is_whole = is_whole
        self._vhosts, self._users = (
            {entry.get("name") for side in (here, there) for entry in side.get(kind) or ()}
            for kind in ("vhosts", "users"))
        self._has_upstreams = any(
            entry.get("component") in ACTING for side in (here, there)
            for entry in side.get("parameters") or ())

    def rows(self):
        """Yield a dict {action, kind, vhost, name, note} for each entry of ``there``. ``action`` says what an
        import does with the entry:

            new          creates it
            differs      replaces, or keeps, the different entry here
            ignored      skips it
            refused      rejects it
            same         changes nothing, but a note says how this broker treats the entry

        Other equal entries are left out. So are entries only in ``here``, because an import deletes nothing.
        """
        for kind, fields in KEYS.items():
            entries = self._there.get(kind) or ()
            if not entries:
                continue
            if not self._is_whole:
                if kind in _NOT_IN_A_VHOST:
                    yield _ignored(kind, NOT_IN_A_VHOST_NOTE)
                    continue
                fields = tuple(field for field in fields if field != "vhost")
            present = {_key(entry, fields): entry for entry in self._paced(self._here.get(kind) or ())}
            for entry in self._paced(entries):
                if not _is_there_anyway(kind, entry):
                    yield from self._row(kind, entry, present.get(_key(entry, fields)))
            for _ in self._paced(range(len(present))):
                present.popitem()  # freeing all at once takes a while
        for kind, value in self._there.items():
            if isinstance(value, list) and kind not in KEYS:
                yield _ignored(kind, "a list that this broker does not know")

    def _row(self, kind, entry, mine):
        changed = [] if mine is None else _changed(mine, entry)
        notes = list(_notes(kind, entry, self._is_whole))
        if (mine is None or changed) and self._acts(kind, entry):
            notes.append(RUNS_NOTE)
        if changed:
            notes.insert(
                0,
                f"differs from here in {', '.join(changed)}; "
                f"the import {'leaves it as it is' if kind in _STAY else 'replaces it'}",
            )
        action = "new" if mine is None else "differs" if changed else "same"
        if kind == "global_parameters" and entry.get("name") in NOT_IMPORTED:
            action, notes = "ignored", [NOT_IMPORTED[entry["name"]]]
        elif kind == "queues" and mine is None and entry.get("name", "").startswith("amq."):
            action, notes = "ignored", [RESERVED_NOTE]
        elif refusal := self._refusal(kind, entry):
            action, notes = "refused", [refusal]
        if action != "same" or notes:
            yield {
                "action": action, "kind": kind, "vhost": entry.get("vhost", ""), "name": _name(kind, entry),
                "note": "; ".join(notes),
            }

    def _acts(self, kind, entry):
        """Return True if an entry of the list ``kind`` acts by itself, as a shovel or federation does."""
        if kind == "policies":
            return self._has_upstreams and not set(ACTING).isdisjoint(entry.get("definition") or {})
        return kind == "parameters" and entry.get("component") in ACTING

    def _refusal(self, kind, entry):
        vhost = entry.get("vhost", DEFAULT_VHOST)
        if self._is_whole and "vhost" in KEYS[kind] and self._vhosts and vhost not in self._vhosts:
            return f"no vhost '{vhost}'"
        if (
            kind in ("permissions", "topic_permissions") and self._users
            and entry.get("user") not in self._users
        ):
            return f"no user '{entry.get('user')}'"
        if kind == "exchanges" and self._exchange_types and entry.get("type") not in self._exchange_types:
            return f"unknown exchange type '{entry.get('type')}'"
        return ""


def _ignored(kind, note):
    return {"action": "ignored", "kind": kind, "vhost": "", "name": "", "note": note}


def _is_there_anyway(kind, entry):
    if kind == "exchanges":
        return not entry.get("name") or entry["name"].startswith("amq.")
    return kind == "bindings" and not entry.get("source")


def _key(entry, fields):
    return tuple(
        _plain(field, entry.get(field, DEFAULT_VHOST if field == "vhost" else None)) for field in fields
    )


def _name(kind, entry):
    if kind == "bindings":
        return f"{entry.get('source')} -> {entry.get('destination')} ({entry.get('routing_key')})"
    return entry.get("name") or entry.get("user") or ""


def _changed(mine, theirs):
    """Return the names of the fields whose values differ. Tags, in a text or a list, are compared as sets."""
    return [field for field, value in theirs.items()
            if field in mine and field not in _NOT_COMPARED
            and _plain(field, mine[field]) != _plain(field, value)]


def _plain(field, value):
    if field == "tags":
        tags = value.split(",") if isinstance(value, str) else value or ()
        return {tag.strip() for tag in tags if tag.strip()}
    if field == "apply-to":
        return str(value).replace("-", "_")
    if field == "arguments":
        return repr(sorted((value or {}).items()))
    return value


def _notes(kind, entry, is_whole):
    arguments = entry.get("arguments") or {}
    if kind == "queues" and arguments.get("x-queue-type") == "quorum":
        yield QUORUM_NOTE
    if kind == "policies" and any(key.startswith("ha-") for key in entry.get("definition") or {}):
        yield MIRROR_NOTE
    if is_whole and "vhost" in KEYS[kind] and "vhost" not in entry:
        yield NO_VHOST_NOTE
