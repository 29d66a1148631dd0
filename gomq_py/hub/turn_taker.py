"""Turn taker: what the scheduler knows of those that it gives turns: a name for the log, a flush and a turn.

Below the scheduler and whatever is scheduled, such as destinations of messages. Knows neither.
"""


class TurnTaker:
    """Does its further work once per read.

    ``touched`` belongs to the scheduler: True while this waits for its turn.
    """

    __slots__ = ("name", "touched")

    def __init__(self, name):
        self.name = name
        self.touched = False

    def flush(self):
        """End of a batch: let everything taken so far outlive a kill of this process."""

    def turn(self):
        """End of a batch, after flush(): a bounded amount of work, such as delivering.

        Returns the octets written to sockets, about.
        """
        return 0
