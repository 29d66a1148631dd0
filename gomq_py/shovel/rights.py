"""Rights: with whose a shovel's end in this broker works, and whether those suffice.

A shovel is its setter's deed: what that user may not do by hand it does not do for it either. Ends elsewhere
log in there, and are none of this.
"""
from urllib.parse import unquote, urlsplit

from gomq_py.auth.permissions import Permission
from gomq_py.auth.users import User
from gomq_py.broker.exchanges.state import ExchangeState
from gomq_py.broker.policies.parameters import OPERATOR
from gomq_py.broker.verbs.access import EXCHANGE, QUEUE, Access, AllAccess, may_enter, refusal
from gomq_py.errors import NoPermission
from gomq_py.shovel.definition import DefinitionError, is_local, with_vhost

ADMINISTRATOR, POLICYMAKER = "administrator", "policymaker"


class MachineOperator(User):
    """The operator of this machine, who may do everything and is in no list."""

    __slots__ = ()

    def __init__(self):
        # impersonator: messages keep the user-id that they came with
        super().__init__("gomq-py", "", "", (ADMINISTRATOR, "impersonator"), ExchangeState())

    def permission(self, vhost):
        """All rights, everywhere."""
        return Permission(self.name, vhost, ".*", ".*", ".*")


class Rights:
    """Asks the users of one broker."""

    def __init__(self, broker):
        self._broker = broker
        self._operator = MachineOperator()

    def user_of(self, by, uri):
        """The User that a local end works as; ``by`` set the shovel (broker.policies.parameters), and the URI
        may name another.

        Raises DefinitionError where nobody may.
        """
        setter = self._setter(by)
        name = urlsplit(uri).username
        if name is None or unquote(name) == setter.name:
            return setter
        if setter is not self._operator and ADMINISTRATOR not in setter.tags:
            raise DefinitionError(
                f"user '{setter.name}' is no administrator: an end in this broker works as the user who set "
                "the shovel, and a URI without a host names no other")
        named = self._broker.users.get(unquote(name))
        if named is None:
            raise DefinitionError(f"there is no user '{unquote(name)}' for an end in this broker")
        return named

    def _setter(self, by):
        if by == OPERATOR:
            return self._operator
        user = None if by is None else self._broker.users.get(by)
        if user is None:
            raise DefinitionError(
                "an end in this broker (a URI without a host) works with the rights of the user who set the "
                "shovel: " + (
                    "whoever set it is no user of this broker's own" if by is None
                    else f"user '{by}' is gone"))
        if not {ADMINISTRATOR, POLICYMAKER} & set(user.tags):
            raise DefinitionError(f"user '{by}', who set the shovel, has not the tag policymaker")
        return user

    def check(self, definition, vhost_name, by):
        """Every local end of a shovel in this vhost may be what it is. Raises DefinitionError."""
        for uri in filter(is_local, definition.src_uri):
            self._check_end(uri, vhost_name, by, (
                (QUEUE, definition.src_queue), (EXCHANGE, definition.src_exchange)), ())
        for uri in filter(is_local, definition.dest_uri):
            exchange = "" if definition.dest_queue is not None else definition.dest_exchange
            self._check_end(uri, vhost_name, by, (), ((EXCHANGE, exchange),))

    def _check_end(self, uri, vhost_name, by, read, written):
        user = self.user_of(by, uri)
        there = unquote(urlsplit(with_vhost(uri, vhost_name)).path[1:]) or "/"
        if there not in self._broker.vhosts:
            raise DefinitionError(f"there is no virtual host '{there}' in this broker")
        if not may_enter(user, there):
            raise DefinitionError(refusal(f"vhost '{there}'", user))
        access = (AllAccess if user is self._operator else Access)(user, there)
        try:
            for kind, name in read:
                if name is not None:
                    access.read(kind, name)
            for kind, name in written:
                if name is not None:
                    access.write(kind, name)
        except NoPermission as refused:
            raise DefinitionError(refused.text) from None
