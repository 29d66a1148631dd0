"""Setters: as whom the end of a link in this broker works.

What the user who set the link may not do by hand it does not do for that user either.
"""
from gomq_py.auth.permissions import Permission
from gomq_py.auth.users import User
from gomq_py.broker.exchanges.state import ExchangeState
from gomq_py.broker.policies.parameters import OPERATOR

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


class Setters:
    """Asks the users of one broker."""

    def __init__(self, broker):
        self._broker = broker
        self._operator = MachineOperator()

    def user_of(self, by, what):
        """The User who set ``what``; ``by`` as broker.policies.parameters has it. Raises ValueError."""
        if by == OPERATOR:
            return self._operator
        user = None if by is None else self._broker.users.get(by)
        if user is None:
            raise ValueError(
                f"an end in this broker works with the rights of the user who set {what}: " + (
                    "whoever set it is no user of this broker's own, or was deleted" if by is None
                    else f"user '{by}' is gone"))
        if not {ADMINISTRATOR, POLICYMAKER} & set(user.tags):
            raise ValueError(f"user '{by}', who set {what}, has not the tag policymaker")
        return user
