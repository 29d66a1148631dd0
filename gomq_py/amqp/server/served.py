"""Served: a client of AMQP, served without a greenlet, which would take more memory than all the rest of an
idle connection, and a fifth of the time of a login.

Between who accepts clients (server, local) and a connection: it waits for the end, and says the last word.
"""
import gevent

from gomq_py.net.listener import telling_why


class Served:
    """``protocol``, ``address``: of the client, for the log; ``strangers``: a QuietLog.
    ``give_back(connection)`` is called once, when the client is gone, and must not switch.
    """

    __slots__ = (
        "connection", "protocol", "address", "strangers", "give_back", "on_gone", "arguments", "is_gone",
    )

    def __init__(self, connection, protocol, address, strangers, give_back):
        self.connection = connection
        self.protocol = protocol
        self.address = address
        self.strangers = strangers
        self.give_back = give_back
        self.on_gone = None
        self.arguments = ()
        self.is_gone = False

    def begin(self):
        """Read what the client says from now on. A fault gives back what was taken, and is raised."""
        try:
            self.connection.begin(self.over)
        except BaseException:
            self.give_back(self.connection)
            raise

    def when_gone(self, callback, *arguments):
        """Call ``callback(*arguments)`` when the client is gone and all is given back: the socket may be
        closed.
        """
        self.on_gone, self.arguments = callback, arguments
        if self.is_gone:
            callback(*arguments)

    def over(self):
        """Nothing more is read of it, and nothing goes out to it while its end waits for its turn: of
        thousands that are lost together each would be lent, and have counted, what the one before it gave
        back.
        """
        self.connection.lend_nothing()
        gevent.get_hub().loop.run_callback(self._end)

    def _end(self):
        """In the loop. Where a network fails, thousands end at once."""
        self.connection.hub.slow_turns.call(self._end_in_turn)

    def _end_in_turn(self):
        """End at once where there is nobody to wait for, or in a greenlet."""
        if self.connection.hub.is_closed:  # nobody is told
            self.connection.cut_off()
            self._gone()
        elif self.connection.is_left_alone():
            self._finish()
        else:
            gevent.spawn(self._finish).name = f"amqp {self.connection.peer}"

    def _finish(self):
        """Say the last word. May switch, unless the connection is left alone."""
        lingers = False
        try:
            with telling_why(self.protocol, self.address, self.strangers):
                lingers = self.connection.finish()
        finally:
            if lingers:
                self.connection.hub.lingering.end_later(self.connection.socket, self._gone)
            else:
                self._gone()

    def _gone(self):
        self.is_gone = True
        self.give_back(self.connection)
        if self.on_gone is not None:
            self.on_gone(*self.arguments)
