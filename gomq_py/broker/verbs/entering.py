"""Entering: authenticates a client and admits it to a vhost, for every protocol.

Protocol servers parse logins and translate refusals; this module decides. The texts are RabbitMQ's.
"""
from gomq_py.auth.errors import LoginRefused
from gomq_py.broker.policies.limits import MAX_CONNECTIONS
from gomq_py.broker.verbs.access import may_enter, refusal
from gomq_py.errors import AccessRefused, NotFound, OutOfResources


def check_credentials(logins, clients, username, password, host, deadline):
    """Log a client in from the address ``host``, and count the login in ``clients`` (hub.clients.Clients).
    Returns the User. ``password``: bytes, or None if a verified certificate names the user. ``deadline``:
    the login's, paused while the login is delayed. Raises LoginRefused. May switch greenlets.
    """
    # ``clients`` may stop admitting connections before this returns, so the caller must check that
    # afterwards.
    try:
        if clients.refusing_logins:
            raise LoginRefused("logins are refused at the moment")
        if password is None:
            user = logins.login_certified(username, host)
        else:
            user = logins.login_at_once(username, password, host)
            if user is None:
                # Others' failures with this name or address may delay the login for a minute, which is not
                # the client's fault: a correct password succeeds, if late.
                with deadline.paused():
                    user = logins.login(username, password, host)
    except LoginRefused:
        clients.churn.logins_failed += 1
        raise
    if not clients.is_closing:
        clients.churn.logins_succeeded += 1
    return user


def check_at_once(logins, clients, username, password, host):
    """Log a client in without waiting. Returns the User; None if check_credentials() must decide."""
    if clients.refusing_logins:
        return None
    if password is None:
        try:
            user = logins.login_certified(username, host)
        except LoginRefused:  # check_credentials() will count and report it
            return None
    else:
        user = logins.login_at_once(username, password, host)
    if user is not None and not clients.is_closing:
        clients.churn.logins_succeeded += 1
    return user


def lost_entry(users, user, name):
    """Return a text that says why a connected User may not stay in the vhost ``name``, or None."""
    if may_enter(user, name):
        return None
    if users.get(user.name) is not user:
        return f"user '{user.name}' was deleted"
    return f"user '{user.name}' has no permission for vhost '{name}'"


def enter(broker, clients, user, name, door, most=0):
    """Check that the user may open one more connection to the vhost ``name``, and return the VHost. ``door``:
    the protocol, which may have ``most`` connections (0: no limit). Raises NotFound, AccessRefused,
    OutOfResources at a connection limit.
    """
    if most and clients.count_of_door(door) >= most:
        raise OutOfResources(f"connection refused: node connection limit ({most}) is reached")
    vhost = broker.vhosts.get(name)
    if vhost is None:
        raise NotFound(f"vhost {name} not found")
    if not may_enter(user, name):
        raise AccessRefused(refusal(f"vhost '{name}'", user))
    limit = vhost.limits.get(MAX_CONNECTIONS)
    if limit is not None and clients.count_in_vhost(vhost) >= limit:
        no_access = refusal(f"vhost '{name}'", user)
        raise OutOfResources(f"{no_access}: connection limit ({limit}) is reached")
    limit = broker.user_limits.limit(user, MAX_CONNECTIONS) if user.limits else None
    if limit is not None and clients.count_of_user(user.identity) >= limit:
        raise OutOfResources(
            f"connection refused for user '{user.name}': user connection limit ({limit}) is reached"
        )
    return vhost
