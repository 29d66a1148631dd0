"""Keeps users, with passwords, tags, limits and permissions, in the file ``users`` of the data folder.

The broker and all protocols use this module. A change is written to the log before it takes effect, and is on
disk after the next flush. Never switches greenlets. Verifying a bcrypt hash takes long, so Logins calls
``Users.matching_hash`` in a thread if ``is_costly`` is true.
"""
import os
import time
from functools import lru_cache, partial
from ipaddress import IPv6Address, ip_address

from gomq_py.auth import passwords
from gomq_py.auth.labels import check_tags, check_user_name
from gomq_py.auth.permissions import Permission, TopicPermission
from gomq_py.content.fields import encode_table
from gomq_py.digests import blake2b
from gomq_py.observability.log import logger
from gomq_py.storage.logs.definition_log import DefinitionLog
from gomq_py.storage.logs.framed_log import LogError, keep_left_out
from gomq_py.storage.logs.log_records import RecordError, are_numbers, is_str, is_text, is_texts, optional

LOG = logger("auth")
TAGS = ("administrator", "monitoring", "management", "policymaker", "impersonator")

# Verified passwords that are remembered, as keyed digests: a fleet that reconnects at once needs them.
REMEMBERED_LOGINS = 4096
_RIGHTS = ("permission", "permission-delete", "topic-permission", "topic-permission-delete")
# Log records beyond twice a snapshot's before the log is compacted: some 100 KB.
_SLACK = 1000


class User:
    """One user: login, rights and limits ({name: integer}, see broker.policies.limits).

    ``state.revision`` changes with the permissions, which invalidates cached routes. ``login_revision``
    changes when the password or tags change, and when the user is deleted (see LoginProof).
    """

    __slots__ = (
        "name", "password_hash", "hashing_algorithm", "tags", "permissions", "topic_permissions", "limits",
        "state", "login_revision")

    expires_at_s = None  # Unix time at which the login ends; only auth.tokens sets it
    of_token = False

    def __init__(self, name, password_hash, hashing_algorithm, tags, state):
        self.name = name
        self.password_hash = password_hash
        self.hashing_algorithm = hashing_algorithm
        self.tags = tuple(tags)
        self.permissions = {}
        self.limits = {}
        self.topic_permissions = {}
        self.state = state
        self.login_revision = 0

    def __repr__(self):
        return f"<User {self.name!r}>"

    @property
    def identity(self):
        """(name, ``of_token``), which distinguishes a token's user from the local user of the same name."""
        return self.name, self.of_token

    def may_sign(self, user_id):
        """Return whether the user may publish messages with this user_id property."""
        return user_id == self.name or "impersonator" in self.tags

    def permission(self, vhost):
        """Return the Permission in this vhost; None if the user has no access to it."""
        return self.permissions.get(vhost)

    def topic_permission(self, vhost, exchange):
        """Return the TopicPermission at this exchange, or None if every routing key is allowed."""
        return self.topic_permissions.get((vhost, exchange))

    def has_tag(self, tag):
        return tag in self.tags

    def has_login(self, password_hash, hashing_algorithm, tags):
        """Return whether the user has this hash, algorithm and tags, with the tags in the same order."""
        return (self.password_hash, self.hashing_algorithm, self.tags) == (
            password_hash, hashing_algorithm, tuple(tags)
        )

    def change_login(self, password_hash, hashing_algorithm, tags):
        """Set hash, algorithm and tags. If a value has changed, the user's existing logins end."""
        before = self.password_hash, self.hashing_algorithm, frozenset(self.tags)
        self.password_hash, self.hashing_algorithm, self.tags = password_hash, hashing_algorithm, tuple(tags)
        if before != (password_hash, hashing_algorithm, frozenset(tags)):
            self.login_revision += 1


class LoginProof:
    """Checks later whether a login of ``user`` is still valid, for long requests and web sessions. Changes of
    the user's rights in vhosts do not matter.
    """

    __slots__ = ("user", "_revision")

    def __init__(self, user):
        self.user = user
        self._revision = user.login_revision

    def is_good(self, unix_s=None):
        """Return whether the user exists with the same password and tags, and its token has not expired."""
        expires_at_s = self.user.expires_at_s
        if expires_at_s is not None and expires_at_s <= (time.time() if unix_s is None else unix_s):
            return False
        return self.user.login_revision == self._revision


class Users:
    """All users by name, and the log that keeps them. Empty before ``open``.

        make_state()         makes each user's ``state``
        only_local           names of users who may log in only from this machine
        left, note           see DefinitionLog
        on_change(record)    if set, called with each written change before it takes effect
        rights_watchers      called with a User whose permissions or tags have changed; must not raise
    """

    def __init__(self, files, path, committer, scheduler, make_state, only_local=(), left=None, note=None):
        self._make_state = make_state
        self.on_change = None
        self.rights_watchers = []
        self._only_local = frozenset(only_local)
        self._users = {}
        self._cache_key = os.urandom(32)
        self._verified = {}
        self._costliest = None  # highest bcrypt cost among the users' hashes; None: unknown after a change
        self._files = files
        self._log = DefinitionLog(
            files, path, committer, scheduler, "users", SHAPES, _SLACK, born_whole=True,
            fails_all=False,  # stored messages do not depend on their readers' rights
            left=left, note=note, notes_growth=True)

    def open(self):
        """Read the log; return self. Blocks, so only for boot. Raises LogError, OSError."""
        self._log.open()
        self._replay()
        self._log.compact_when_long(self._snapshot)
        return self

    def close(self):
        self._log.close()

    # looking up

    @property
    def damage(self):
        """List of the storage.format.log.Damage that was found when the log was read."""
        return self._log.damage

    @property
    def on_disk(self):
        """{log id: number of flushed bytes of the log}; empty before the first record."""
        return self._log.on_disk

    @property
    def is_new(self):
        """Whether the data folder is new. False if the file was damaged or all users were deleted."""
        return self._log.is_new

    def begin(self, users):
        """Create the first users at the first boot. A crash leaves all or none of them; on return all are on
        disk. Blocks. Raises OSError. ``users``: tuples of arguments of user_record, with checked hashes.
        """
        self._log.begin([user_record(*user) for user in users])
        for user in users:
            self._put(*user)

    def __contains__(self, name):
        return name in self._users

    def __len__(self):
        return len(self._users)

    def __iter__(self):
        return iter(list(self._users.values()))

    def get(self, name):
        return self._users.get(name)

    # logging in

    def is_costly(self, name, password):
        """Return whether ``matching_hash`` would compute a bcrypt hash, and therefore needs a thread."""
        user = self._users.get(name, _NOBODY)
        return (
            passwords.is_costly(user.password_hash)
            and self._proof(user.password_hash, password) not in self._verified
        )

    def costs_left(self, name):
        """Return bcrypt costs for ``passwords.spend`` after a wrong login, so that all take equally long."""
        # So every refusal takes as long as for the costliest hash, and does not reveal which users exist.
        if self._costliest is None:
            self._costliest = max(
                (passwords.bcrypt_cost(user.password_hash) for user in self._users.values()), default=0
            )
        spent = passwords.bcrypt_cost(self._users.get(name, _NOBODY).password_hash)
        if spent:
            # each step costs twice the one before, so these add up to the costliest
            return range(spent, self._costliest)
        return (self._costliest,) if self._costliest else ()

    def matching_hash(self, name, password):
        """Return the user's hash if the password matches it, otherwise None. Remembers a verified password.
        May run in a thread. Then call ``is_hash_of`` afterwards, because the user may have changed.
        """
        # an unknown name takes as long, so the time reveals nothing
        user = self._users.get(name, _NOBODY)
        password_hash = user.password_hash
        proof = self._proof(password_hash, password)
        if proof in self._verified:
            return password_hash
        if not passwords.verify(password, password_hash, user.hashing_algorithm):
            return None
        if len(self._verified) >= REMEMBERED_LOGINS:
            self._verified.clear()
        self._verified[proof] = None
        return password_hash

    def get_verified(self, name, password, address):
        """Return the user if this password was verified earlier in this run, otherwise None. None also if the
        user may not log in from this address. Computes no costly hash.
        """
        user = self._users.get(name)
        if (
            user is not None and self._proof(user.password_hash, password) in self._verified
            and self.may_come_from(name, address)
        ):
            return user
        return None

    def is_hash_of(self, name, password_hash):
        return self._users.get(name, _NOBODY).password_hash == password_hash

    def may_come_from(self, name, address):
        """Return whether this user may log in from a peer address (str; "" for a unix socket)."""
        return name not in self._only_local or is_loopback(address)

    # changing

    def set_user(
        self, name, password=None, password_hash=None, hashing_algorithm=passwords.SHA256, tags=(), grants=()
    ):
        """Create a user, or set its password and tags. Raises ValueError, PreconditionFailed, OSError.

        Returns the User. Without password and hash it cannot log in by password. ``grants``: vhosts in which
        it gets all rights. An unchanged password keeps its hash. If the hash is costly, call Logins.ask_ahead
        first.
        """
        # A new salt would end the user's sessions. A crash leaves both user and rights or neither. A call
        # that changes nothing writes nothing.
        algorithm = passwords.algorithm_named(hashing_algorithm)
        check_user_name(name)
        check_tags(tags)
        user = self._users.get(name)
        if password is not None and self._keeps_hash(user, password, algorithm):
            password_hash, algorithm = user.password_hash, user.hashing_algorithm
        elif password is not None:
            password_hash = passwords.hash_password(password, algorithm)
        password_hash = passwords.check_hash(password_hash or "", algorithm)
        is_same = user is not None and not grants and user.has_login(password_hash, algorithm, tags)
        if is_same and not self._log.has_failed:  # otherwise the record may not be on disk
            return user
        self._append(user_record(name, password_hash, algorithm, tags, grants))
        return self._put(name, password_hash, algorithm, tags, grants)

    def set_tags(self, name, tags):
        """Change a user's tags. Raises KeyError (unknown user), PreconditionFailed, OSError."""
        user = self._users[name]
        check_tags(tags)
        self._append(user_record(name, user.password_hash, user.hashing_algorithm, tags))
        self._change_login(user, user.password_hash, user.hashing_algorithm, tags)

    def set_limits(self, name, limits):
        """Replace a user's limits, {name: integer}. Raises KeyError (unknown user), OSError."""
        user = self._users[name]
        self._append(_limits_record(name, limits))
        user.limits = dict(limits)

    def delete_user(self, name):
        """Delete a user. Return the deleted User; None if the name is unknown. Raises OSError."""
        user = self._users.get(name)
        if user is None:
            return None
        self._append({"op": "user-delete", "name": name})
        del self._users[name]
        self._costliest = None
        user.login_revision += 1
        user.permissions.clear()
        user.topic_permissions.clear()
        self._rights_changed(user)
        return user

    def set_permission(self, name, vhost, configure, write, read):
        """Set rights in a vhost. Raises KeyError (unknown user), ValueError (bad expression), OSError."""
        user = self._users[name]
        permission = Permission(name, vhost, configure, write, read)
        self._append(_permission_record(permission))
        user.permissions[vhost] = permission
        self._rights_changed(user)
        return permission

    def delete_permission(self, name, vhost):
        """Revoke a user's access to a vhost. Return whether the user had access. Raises OSError."""
        user = self._users.get(name)
        if user is None or vhost not in user.permissions:
            return False
        self._append({"op": "permission-delete", "user": name, "vhost": vhost})
        del user.permissions[vhost]
        self._rights_changed(user)
        return True

    def set_topic_permission(self, name, vhost, exchange, write, read):
        """Limit routing keys at a topic exchange. Raises KeyError (unknown user), ValueError, OSError."""
        user = self._users[name]
        permission = TopicPermission(name, vhost, exchange, write, read)
        self._append(_topic_record(permission))
        user.topic_permissions[vhost, exchange] = permission
        self._rights_changed(user)
        return permission

    def delete_topic_permissions(self, name, vhost, exchange=None):
        """Remove a user's limits on routing keys at one exchange of a vhost or, with None, at all of them.
        Return whether there were any. Raises OSError.
        """
        user = self._users.get(name)
        limited = (
            [] if user is None
            else [key for key in user.topic_permissions if key[0] == vhost and exchange in (None, key[1])]
        )
        for key in limited:
            self._append({"op": "topic-permission-delete", "user": name, "vhost": vhost, "exchange": key[1]})
            del user.topic_permissions[key]
            self._rights_changed(user)
        return bool(limited)

    def forget_vhost(self, vhost, name):
        """Remove all permissions of this user in a deleted vhost. Raises OSError."""
        self.delete_permission(name, vhost)
        self.delete_topic_permissions(name, vhost)

    def forget_vhosts(self, vhosts):
        """At boot, remove all rights in these vhosts, whose deletion a crash interrupted. Blocks. A file
        beside the log keeps the removed records; if it cannot be written, the rights stay.
        """
        left = [
            (user, record)
            for user in self._users.values() for record in _rights_of(user) if record["vhost"] in vhosts
        ]
        if not left:
            return
        try:
            keep_left_out(self._files, self._log.path, [encode_table(record) for _, record in left])
            for user, record in left:
                self.forget_vhost(record["vhost"], user.name)
        except OSError as error:
            LOG.error(
                "users: rights in vhosts that were deleted stay, for they cannot be written elsewhere: %s",
                error,
            )
            return
        for name, vhost in dict.fromkeys((user.name, record["vhost"]) for user, record in left):
            LOG.warning(
                "users: rights of %r in vhost %r are left out, for there is no such vhost; "
                "they are kept in %s.left-out",
                name, vhost, self._log.path,
            )

    # helpers

    def _rights_changed(self, user):
        user.state.revision += 1
        for watcher in self.rights_watchers:
            watcher(user)

    def _change_login(self, user, password_hash, algorithm, tags):
        before = frozenset(user.tags)
        user.change_login(password_hash, algorithm, tags)
        if before != frozenset(tags):
            self._rights_changed(user)

    def _keeps_hash(self, user, password, algorithm):
        """Return whether the password matches the hash, and the hash has this algorithm or is costly."""
        if (
            user is None
            or user.hashing_algorithm != algorithm and not passwords.is_costly(user.password_hash)
        ):
            return False
        return not self.is_costly(user.name, password) and self.matching_hash(user.name, password) is not None

    def _proof(self, password_hash, password):
        """Return the digest (bytes) by which a verified password is remembered."""
        # It is useless outside this process, and changes with the user's hash.
        octets = password.encode("utf-8", "surrogateescape") if isinstance(password, str) else bytes(password)
        # keyed, as HMAC is, at a fifth of its cost
        return blake2b(password_hash.encode() + b"\0" + octets, key=self._cache_key).digest()

    def _put(self, name, password_hash, algorithm, tags, grants=()):
        self._costliest = None
        user = self._users.get(name)
        if user is None:
            user = self._users[name] = User(name, password_hash, algorithm, tags, self._make_state())
        else:
            self._change_login(user, password_hash, algorithm, tags)
        for vhost in grants:
            user.permissions[vhost] = Permission(name, vhost, ".*", ".*", ".*")
            self._rights_changed(user)
        return user

    def _append(self, record):
        self._log.append(record)
        if self.on_change is not None:
            self.on_change(record)

    def _replay(self):
        try:
            left_out = [record for record in self._log.replay() if not self._can_apply(record)]
        except LogError as error:
            advice = (
                "Restore it from a backup, or begin with one administrator by 'gomq-py-ctl recover_users "
                f"{os.path.dirname(self._log.path)} NAME'")
            raise LogError(error.path, f"{error.reason}. {advice}") from error
        self._log.say_damage("Check users, passwords and permissions")
        self._log.leave_out(left_out)

    def _can_apply(self, record):
        """Apply a log record. Return False, without failing the boot, if the record is unusable."""
        try:
            self._apply(record)
            return True
        except (OSError, MemoryError):
            raise
        except RecordError as error:
            LOG.error("users: a record is left out: %s", error)
        except Exception as error:
            LOG.error("users: a record is left out: %s: %s", type(error).__name__, error)
        return False

    def _apply(self, record):
        op = record["op"]
        if op == "user":
            self._put(
                _text(record["name"]), record["hash"], record["algorithm"], record["tags"],
                map(_text, record.get("grants", ())),
            )
        elif op == "user-delete":
            self._users.pop(_text(record["name"]), None)
            self._costliest = None
        elif op in _RIGHTS:
            user = self._users.get(_text(record["user"]))
            if user is not None:
                self._apply_right(op, user, _text(record["vhost"]), record)
        elif op == "limits":
            user = self._users.get(_text(record["user"]))
            if user is not None:
                user.limits = record["limits"]
        else:
            raise RecordError(f"its kind {op!r} is unknown here")

    @staticmethod
    def _apply_right(op, user, vhost, record):
        if op.startswith("topic-"):
            exchange = _text(record["exchange"])
            user.topic_permissions.pop((vhost, exchange), None)
            if op == "topic-permission":
                user.topic_permissions[vhost, exchange] = _topic_permission(
                    user.name, vhost, exchange, record
                )
            return
        user.permissions.pop(vhost, None)
        if op == "permission":
            try:
                user.permissions[vhost] = Permission(
                    user.name, vhost, record["configure"], record["write"], record["read"]
                )
            except ValueError as error:
                # an expression of an earlier release's grammar: no access is better than no boot
                LOG.error("users: permissions of %r in vhost %r are left out: %s", user.name, vhost, error)

    def _snapshot(self):
        """Yield functions for compaction. Each returns the record of a user, limit or right; None if gone."""
        for name in list(self._users):
            yield partial(self._login_now, name)
            user = self._users.get(name)
            if user is not None:
                yield partial(self._limits_now, name)
                for vhost in list(user.permissions):
                    yield partial(self._permission_now, name, vhost)
                for key in list(user.topic_permissions):
                    yield partial(self._topic_permission_now, name, key)

    def _login_now(self, name):
        user = self._users.get(name)
        return (
            None if user is None
            else user_record(name, user.password_hash, user.hashing_algorithm, user.tags)
        )

    def _limits_now(self, name):
        user = self._users.get(name)
        return _limits_record(name, user.limits) if user is not None and user.limits else None

    def _permission_now(self, name, vhost):
        user = self._users.get(name)
        right = None if user is None else user.permissions.get(vhost)
        return None if right is None else _permission_record(right)

    def _topic_permission_now(self, name, key):
        user = self._users.get(name)
        limit = None if user is None else user.topic_permissions.get(key)
        return None if limit is None else _topic_record(limit)


# Fields that a usable record has: {op: {field: check}}.
SHAPES = {
    "user": {
        "name": is_text, "hash": is_str, "algorithm": is_str, "tags": is_texts, "grants": optional(is_texts)
    },
    "user-delete": {"name": is_text},
    "permission": {"user": is_text, "vhost": is_text, "configure": is_str, "write": is_str, "read": is_str},
    "permission-delete": {"user": is_text, "vhost": is_text},
    "topic-permission": {
        "user": is_text, "vhost": is_text, "exchange": is_text, "write": is_str, "read": is_str
    },
    "topic-permission-delete": {"user": is_text, "vhost": is_text, "exchange": is_text},
    "limits": {"user": is_text, "limits": are_numbers},
}


def user_record(name, password_hash, algorithm, tags, grants=()):
    """Return the log record of a user. ``grants``: vhosts in which the user gets all rights."""
    record = {"op": "user", "name": name, "hash": password_hash, "algorithm": algorithm, "tags": list(tags)}
    return {**record, "grants": list(grants)} if grants else record


def _limits_record(name, limits):
    return {"op": "limits", "user": name, "limits": limits}


def _permission_record(right):
    return {
        "op": "permission", "user": right.user, "vhost": right.vhost, "configure": right.configure,
        "write": right.write, "read": right.read,
    }


def _rights_of(user):
    yield from map(_permission_record, user.permissions.values())
    yield from map(_topic_record, user.topic_permissions.values())


def _topic_permission(user, vhost, exchange, record):
    try:
        return TopicPermission(user, vhost, exchange, record["write"], record["read"])
    except ValueError as error:  # as above, since without the limit every key would be allowed
        LOG.error(
            "users: topic permissions of %r at exchange %r in vhost %r allow nothing now: %s", user, exchange,
            vhost, error,
        )
        return TopicPermission(user, vhost, exchange, "^$", "^$")


def _topic_record(limit):
    return {
        "op": "topic-permission", "user": limit.user, "vhost": limit.vhost, "exchange": limit.exchange,
        "write": limit.write, "read": limit.read,
    }


@lru_cache(REMEMBERED_LOGINS)
def is_loopback(address):
    """Return whether an address is this machine's: IPv4, mapped or IPv6 loopback, or "" (unix socket)."""
    if not address:
        return True
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return parsed.is_loopback


def _text(value):
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


# Hash in place of an unknown user's; its password is random.
_NOBODY = User("", passwords.hash_password(os.urandom(16)), passwords.SHA256, (), None)
