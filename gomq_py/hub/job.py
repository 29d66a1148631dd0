"""Job: long work that is done in slices, has a name, and hears when it fails.

The scheduler (hub.scheduler) runs it.

Below everything that works in slices; imports nothing. A kind of job is a class: its name is what the log and
the metrics call it, ``failed`` is its rule for what a fault costs, and there is no default for that.
"""


class Job:
    """One piece of long work.

    ``running`` is the scheduler's: a job that runs is not started a second time.
    """

    __slots__ = ("running",)

    name = ""

    def __init__(self):
        self.running = False

    def step(self):
        """Do the next slice, a few milliseconds of it at most.

        Returns whether there is more to do after the next poll of the loop.
        """
        raise NotImplementedError

    def failed(self, error):
        """A slice raised, which has been logged and counted: put right what it left.

        Returns whether the job goes on.
        """
        raise NotImplementedError
