"""Client: what all clients of the world have: a connection that is lost and made again, octets that the
network takes late, work at moments of the seed, and bad manners.

Not a greenlet: the world calls it. A protocol's client overrides the methods below "what a client is".
"""

READS_S = (0.0, 50e-6, 1e-3)
ACTS_S = (1e-3, 10e-3, 100e-3)
CONNECTS_S = (10e-3, 0.5)
# The shares of acts that are bad manners, and how long a client does not read.
RUDE_SHARE = 0.01
DEAF_S = (0.5, 5.0)
READ_OCTETS = 65536


class Client:
    """``waits_since_s``: when it asked what was not answered yet, or None. ``is_calm``: nobody is rude any
    more, and nothing new is asked for, so that it can be judged. ``is_gone``: it has left for good, or until
    it is to ``come_again``.
    """

    def __init__(self, world, network, name, port):
        self.world = world
        self.name = name
        self.random = world.random(name)
        self.waits_since_s = None
        self.is_calm = False
        self.is_open = False  # logged in, with all that it needs
        self.is_gone = False
        self._departs = False
        self._was_open = False
        self._network = network
        self._port = port
        self._end = None
        self._unsent = bytearray()
        self._is_about_to_read = False
        self._deaf_until_s = 0.0
        world.after(self.random.choice(CONNECTS_S), self._connect)
        self._act_later()

    # what a client is

    def begin(self):
        """A connection is there."""

    def take(self, octets):
        """These were read."""

    def act(self):
        """Do something, with an open connection."""

    def ended(self):
        """The broker has ended the connection, in order; ``gone`` comes next."""

    def gone(self):
        """The connection was lost, or given up. ``_was_open``: behind its login."""

    def awaits(self):
        """The kinds of answers that it waits for, as texts: those that promise something."""
        return ()

    def pause_s(self):
        """Until it comes again."""
        return self.random.choice(CONNECTS_S)

    def be_rude(self):
        """Do to the connection what is bad manners."""
        self.leave("hangs up")

    def say_goodbye(self):
        """Begin to end the connection in order; the broker ends it, or ``leave`` does."""
        self.leave("goes")

    # its visits

    def depart(self, in_order):
        """Connect no more, and end the connection that there is, in order or with a reset."""
        self._departs = True
        if self._end is not None:
            if in_order:
                self.say_goodbye()
            else:
                self._end.reset()
                self.leave("resets its connection")

    def come_again(self):
        """Connect; it was gone."""
        self._departs = self.is_gone = False
        self._connect()
        self._act_later()

    # for what it does

    def say(self, what):
        """Note it in the trace."""
        self.world.say(self.name, what)

    def send(self, octets):
        """Send, now or when there is room."""
        self._unsent += octets
        self._push()

    def opened(self):
        """It is logged in."""
        self.is_open = True
        self.say("is open")

    def waits(self):
        """It has asked for something."""
        if self.waits_since_s is None:
            self.waits_since_s = self.world.now_s

    def is_answered(self, nothing_is_left):
        """It was answered."""
        self.waits_since_s = None if nothing_is_left else self.world.now_s

    def leave(self, why, stays_s=0.0):
        """Give the connection up without a word, and come again. The old one is there for so long."""
        self.say(why)
        self._lost(stays_s)

    def is_connected_by(self, end):
        """Whether this is its connection now."""
        return self._end is end

    # its connection

    def _connect(self):
        if self._departs:
            self.is_gone = True
            return
        self._end = self._network.connect(self._port, self._hear)
        if self._end is None:
            self.world.after(self.random.choice(CONNECTS_S), self._connect)
            return
        self._end.awaits = self.awaits
        self.say(f"connects as {self._end.name}")
        self.waits()
        self.begin()

    def _hear(self):
        if not self._is_about_to_read:
            self._is_about_to_read = True
            wait_s = max(self._deaf_until_s - self.world.now_s, self.random.choice(READS_S))
            self.world.after(wait_s, self._read)

    def _read(self):
        self._is_about_to_read = False
        end = self._end
        if end is None:
            return
        self._push()
        try:
            while end is self._end and (octets := end.recv(READ_OCTETS)):
                self.take(octets)
            if end is self._end:
                self.ended()
                self.leave("sees the end")
        except BlockingIOError:
            pass
        except OSError as error:
            self.leave(f"sees {type(error).__name__}")

    def _push(self):
        while self._unsent and self._end is not None:
            try:
                del self._unsent[:self._end.send(self._unsent)]
            except BlockingIOError:
                return
            except OSError:  # what the broker said before that is still to be read
                self._unsent.clear()

    def _lost(self, stays_s):
        end, self._end = self._end, None
        if end is not None:
            end.hear = _nobody_hears
            self.world.after(stays_s, end.close) if stays_s else end.close()
            self._unsent.clear()
            self.waits_since_s = None
            self._was_open, self.is_open = self.is_open, False
            self.gone()
            self.world.after(self.pause_s(), self._connect)

    # its work

    def _act_later(self):
        self.world.after(ACTS_S[1] if self.is_calm else self.random.choice(ACTS_S), self._act)

    def _act(self):
        if self._departs:
            return
        if self.is_open:
            if not self.is_calm and self.random.random() < RUDE_SHARE:
                self._be_rude()
            else:
                self.act()
        self._act_later()

    def _be_rude(self):
        if self.random.random() < 0.5:
            self._deaf_until_s = max(self._deaf_until_s, self.world.now_s + self.random.choice(DEAF_S))
            self.say(f"does not read until {self._deaf_until_s:.3f}")
        elif self.random.random() < 0.5:
            self.leave("hangs up")
        else:
            self.be_rude()


def _nobody_hears():
    """Of an end that was given up."""
