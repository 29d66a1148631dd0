"""Ports for brokers that a test starts, on this machine,
more than once or by a program that has to be told the port.

A port that was merely free a moment ago may be another process's by the time it is used, and again while a
broker restarts: hundreds of brokers and thousands of connections take ports beside a test. A socket that is
bound and does not listen keeps the port from being given to anybody who asks for any port, and lets those
have it who name it and set SO_REUSEADDR, as servers do.
"""
import socket

_HELD = []
# The oldest are given back, or they would count as left open: no test has as many.
MOST = 32


def reserve():
    """A port of 127.0.0.1 that the system gives to nobody else,
    until many others have been reserved or this process ends.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _HELD.append(holder)
    if len(_HELD) > MOST:
        _HELD.pop(0).close()
    return holder.getsockname()[1]
