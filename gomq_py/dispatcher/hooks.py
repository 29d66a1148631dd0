"""Functions of a program that hear of every task a worker runs. A leaf."""


class Hooks:
    """Functions that are told of every task: lists to append to. What they raise is logged;
    before a task it fails the task.
    """

    def __init__(self, logger):
        self.before_task: list = []
        self.after_task: list = []
        self.failed_task: list = []
        self._log = logger

    def before(self, context):
        """In the place where the task is going to run."""
        for hook in self.before_task:
            hook(context)

    def ended(self, context, error):
        """The task has returned, or failed with an error."""
        for hook, args in (
            [(each, (context,)) for each in self.after_task]
            if error is None
            else [(each, (context, error)) for each in self.failed_task]
        ):
            try:
                hook(*args)
            except BaseException:  # SystemExit too: the task that it is told of must still be settled
                self._log.exception("a hook of task %r failed", context.name)
