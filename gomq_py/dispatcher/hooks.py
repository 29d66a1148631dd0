"""Hooks: functions of a program that are called for every task of a worker. A leaf."""


class Hooks:
    """Lists of functions, to append to, that are called for every task. Their errors are logged; an error
    before a task fails the task.
    """

    def __init__(self, logger):
        self.before_task: list = []
        self.after_task: list = []
        self.failed_task: list = []
        self._log = logger

    def before(self, context):
        """Call the hooks before a task, where it is going to run."""
        for hook in self.before_task:
            hook(context)

    def ended(self, context, error):
        """Call the hooks after a task returned, or failed with an error."""
        for hook, args in (
            [(each, (context,)) for each in self.after_task]
            if error is None
            else [(each, (context, error)) for each in self.failed_task]
        ):
            try:
                hook(*args)
            except BaseException:  # SystemExit too: the task must still be settled
                self._log.exception("a hook of task %r failed", context.name)
