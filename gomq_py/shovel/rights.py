"""Rights: finds the user whose rights a shovel has at its ends in this broker, and checks these rights.

A shovel has no more rights than the user who set it. At an end in another broker the shovel logs in there,
and no rights are checked here.
"""
from gomq_py.broker.policies.parameters import OPERATOR
from gomq_py.broker.verbs.access import EXCHANGE, QUEUE, Access, AllAccess, may_enter, refusal
from gomq_py.errors import NoPermission
from gomq_py.links.local import ADMINISTRATOR, Setters
from gomq_py.shovel.definition import DefinitionError, is_local, vhost_of


class Rights:
    """Finds the users who set the shovels of one broker, and checks their rights."""

    def __init__(self, broker):
        self._broker = broker
        self._setters = Setters(broker)

    def user_of(self, by, is_needed=True):
        """Return the User whose rights a shovel has at ends in this broker.

        ``by``: name of the user who set the shovel, OPERATOR or None. If there is no such user, or the user
        may not set shovels, raises DefinitionError, or returns None if ``is_needed`` is False.
        """
        try:
            return self._setters.user_of(by, "the shovel")
        except ValueError as error:
            if not is_needed:
                return None
            raise DefinitionError(str(error)) from None

    def is_administrators(self, shovel):
        """True if an administrator set the shovel. Shovels of administrators may connect to more hosts."""
        user = self.user_of(shovel.by, is_needed=False)
        return user is not None and ADMINISTRATOR in user.tags

    def is_less(self, shovel):
        """True if the user who set the shovel has lost the administrator tag since its link was made."""
        return shovel.link is not None and shovel.is_administrators and not self.is_administrators(shovel)

    def check(self, definition, vhost_name, by):
        """Check rights of user ``by`` at a shovel's ends in this broker. Raises DefinitionError."""
        for uri in filter(is_local, definition.src_uri):
            self._check_end(uri, vhost_name, by, (
                (QUEUE, definition.src_queue), (EXCHANGE, definition.src_exchange)), ())
        for uri in filter(is_local, definition.dest_uri):
            exchange = "" if definition.dest_queue is not None else definition.dest_exchange
            self._check_end(uri, vhost_name, by, (), ((EXCHANGE, exchange),))

    def _check_end(self, uri, vhost_name, by, read, written):
        user = self.user_of(by)
        there = vhost_of(uri, vhost_name)
        if there not in self._broker.vhosts:
            raise DefinitionError(f"there is no virtual host '{there}' in this broker")
        if not may_enter(user, there):
            raise DefinitionError(refusal(f"vhost '{there}'", user))
        access = (AllAccess if by == OPERATOR else Access)(user, there)
        try:
            for kind, name in read:
                if name is not None:
                    access.check_read(kind, name)
            for kind, name in written:
                if name is not None:
                    access.check_write(kind, name)
        except NoPermission as refused:
            raise DefinitionError(refused.text) from None
