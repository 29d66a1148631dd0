"""Node: a machine with a folder, on which a program runs, or not."""
from tests.cluster_simulation.folder import Folder
from tests.cluster_simulation.program import Program


class Node:
    """``program``: None while it does not run."""

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.address = f"{name}:5679"
        self.folder = Folder(world.new_id())
        self.clock_offset_s = 0.0
        self.is_disk_ill = False  # flushes of a follower fail
        self.program = None
        self.backups = []

    def __str__(self):
        return self.name

    def boot(self):
        """Start the program, unless it runs."""
        if self.program is None:
            self.world.judge.has_other_state(self)
            self.program = Program(self.world, self, self.world.new_run())

    def kill(self):
        """End the program; what it has written stays."""
        if self.program is not None:
            self.program.end()
            self.program = None

    def restart(self):
        """The program ends by itself, and begins anew."""
        self.kill()
        self.world.after(self.world.random.uniform(0.05, 0.5), self.boot)

    def cut_power(self):
        """Kill, and lose what was not flushed."""
        self.kill()
        self.folder.lose_power(self.world.random)

    def wipe(self):
        """Replace the machine by one with an empty folder."""
        self.kill()
        self.folder = Folder(self.world.new_id())
        self.backups.clear()

    def back_up(self):
        """Keep a copy of the folder."""
        self.backups.append(self.folder.copy())

    def restore(self, folder):
        """Put a copy in place of the folder."""
        self.kill()
        self.folder = folder.copy()
        self.folder.flush_all()
