"""Sets, lists, shows and deletes schedules (broker.exchanges.schedule), and checks the caller's rights."""
from gomq_py.broker.exchanges import schedule as _schedule
from gomq_py.broker.names import described
from gomq_py.broker.verbs.access import EXCHANGE
from gomq_py.content.forms import BASIC
from gomq_py.content.properties import X_SCHEDULE
from gomq_py.errors import NotFound, OutOfResources, PreconditionFailed
from gomq_py.storage.message import Message

SCHEDULED = _schedule.SCHEDULED


def is_set(exchange, envelope, headers):
    """True if a message published to the exchange sets or deletes a schedule."""
    return (
        exchange.delayed_store is not None and headers is not None and X_SCHEDULE in headers
        and envelope.kind == BASIC)


def checked(caller, exchange, headers, properties, body_length, now_ms):
    """Check a message that sets or deletes a schedule. Returns the encoded properties to store; x-schedule in
    them names the user, unless the user is a token's. Raises PreconditionFailed, OutOfResources.
    """
    schedule = _schedule.read(headers, not body_length, now_ms)
    if len(properties) + body_length > _schedule.MOST_OCTETS:
        raise PreconditionFailed(
            f"message with the header '{X_SCHEDULE}' is larger than {_schedule.MOST_OCTETS} bytes")
    kept = exchange.delayed_store.schedules
    if body_length and kept is not None and kept.is_full(schedule.name):
        raise PreconditionFailed(f"{_described(exchange)} has {kept.count} schedules, which is the limit")
    user = caller.access.user
    if user is None or user.of_token:  # a later run does not know the rights of a token
        return properties
    return _schedule.with_fields(properties, **{_schedule.USER: user.name})


def shown(caller, exchange):
    """Yield (due in Unix ms, message) for each schedule of the exchange, in order of names. All pairs share
    one Message. Yields nothing if the caller may not read the exchange.
    """
    kept = None if exchange.delayed_store is None else exchange.delayed_store.schedules
    if kept is None or not caller.access.may_read(exchange.name):
        return
    message = Message()
    for name in kept.names():
        due_ms = kept.show(name, message)
        if due_ms is not None:
            yield due_ms, message


def show(caller, exchange, name):
    """Return (due in Unix ms, message) of a schedule. Needs read. Raises NoPermission, NotFound."""
    caller.access.check_read(EXCHANGE, exchange.name)
    kept, message = exchange.delayed_store.schedules, Message()
    due_ms = None if kept is None else kept.show(name, message)
    if due_ms is None:
        raise _missing(exchange, name)
    return due_ms, message


def delete(caller, exchange, name):
    """Delete a schedule. Needs write. Raises NoPermission, NotFound, OutOfResources."""
    caller.access.check_write(EXCHANGE, exchange.name)
    if exchange.delayed_store.delete_schedule(name):
        return
    if exchange.delayed_store.closed:
        raise OutOfResources(f"{_described(exchange)} is closed after a fault")
    raise _missing(exchange, name)


def _missing(exchange, name):
    return NotFound(f"no schedule '{name}' in {_described(exchange)}")


def _described(exchange):
    return described(EXCHANGE, exchange.name, exchange.vhost)
