"""Faults: what goes wrong at one machine, and what ledgers are told of it."""
from collections import Counter
from functools import partial

from tests.simulation.clock import CLOCK
from tests.simulation.disk import MAKE_FILES

NEXT_FAULT_S = (0.05, 0.5, 2.0)
MOMENTS = (1, 5, 30, 200)  # before a kill in front of a call
SOON = (2, 4, 8)  # as MOMENTS, where a file could not be made
# Before the power is cut behind an answer, which is on its way then.
SOON_S = (0.0, 0.0, 1e-4, 1e-2)
LIKELY = 0.25  # the share of cuts behind the first answer of a kind
CUTS = 3  # behind answers, for each such fault
FULL_S = (0.01, 0.3, 2.0)
JUMPS_S = (-3600.0, -1.0, 1.0, 3600.0)
STALLS_S = (1.0, 5.0)
LOST_S = (0.0, 1e-3, 10e-3, 30e-3)  # behind an answer of the follower


class Faults:
    """Of a ``machine``, while the storm of a ``_reduction`` lasts: of these ``_kinds``, as ``_random`` says.
    ``ledgers`` hear of them.
    """

    world = machine = ledgers = exercised = None
    faults = 0  # so far
    _process = _random = _kinds = _reduction = None
    _soon = None  # a generator
    _cuts = 0  # of the power, which are still to come behind answers
    _told = None  # kind of an answer -> how often a client was told something that awaits it
    _planned = ()  # faults that come next, once a flush that is to fail has failed

    @property
    def process(self):
        """The latest one."""
        return self._process

    def _start(self):
        self._process = self.machine.start(self._ended)
        weather = self.machine.weather
        if weather.slow or weather.failing or weather.refusing:  # since before it began
            self._tell_of_illness(bool(weather.failing or weather.refusing))

    def _ended(self):
        for ledger in self.ledgers:
            ledger.process_ended()

    def _go_wrong(self):
        storm_is_over = self.world.now_s >= self._reduction.storm_s or self.faults == self._reduction.faults
        if not storm_is_over and not self.world.findings:
            self.faults += 1
            if self._process.is_alive:
                is_due = self._planned and not self.machine.weather.failing
                kind = self._planned.pop(0) if is_due else self._random.choice(self._kinds)
                self.world.faults[kind.__name__.strip("_")] += 1
                kind(self)
            else:
                self._start()
            self.world.after(self._random.random() * self._random.choice(NEXT_FAULT_S), self._go_wrong)

    def _kill(self):
        self._process.die("is killed")

    def _kill_at_a_call(self):
        self._process.dies_at = self._process.moments + 1 + self._random.randrange(
            self._random.choice(MOMENTS))

    def _cut_power(self):
        self.machine.cut_power()
        for ledger in self.ledgers:
            ledger.power_was_cut()

    def _lose_machine(self):
        """At once, or soon after something was promised because the follower has it."""
        if self._random.random() < 0.5:
            self._lose(self._process)
        else:
            self.machine.follower.when_answered = partial(
                self.world.after, self._random.choice(LOST_S), self._lose, self._process)

    def _lose(self, process):
        if process is self._process and process.is_alive and self.world.now_s < self._reduction.storm_s:
            self.exercised["followed"] += sum(len(ledger.missing()) for ledger in self.ledgers)
            self.machine.lose()
            for ledger in self.ledgers:
                ledger.leader_was_lost()

    def _cut_power_behind_answers(self):
        """Or behind something else that a client is told that waits for an answer: the more seldom answers of
        that kind are, the likelier.
        """
        if self._told is None:
            self._told, self._soon = Counter(), self.world.random("behind answers")
            self.machine.tells = self._tells
        self._cuts = CUTS

    def _tells(self, kinds):
        for kind in kinds:
            self._told[kind] += 1
            if self._cuts and self._soon.random() * self._told[kind] < LIKELY:
                self._cuts -= 1
                self.world.say(f"power{self.machine.name}", f"is to be cut behind {kind}")
                self.world.after(self._soon.choice(SOON_S), self._cut_power_now)

    def _cut_power_now(self):
        """Unless it is calm."""
        if self.machine.tells is not None and self._process.is_alive:
            self._cut_power()

    def _stop(self):
        if self._process.is_ready:
            self._process.stop()

    def _jump(self):
        CLOCK.jump(self._random.choice(JUMPS_S))
        self.world.say("clock", f"jumps to {CLOCK.jump_s:+.0f} s")

    def _fill_disk(self):
        self.world.say(f"disk{self.machine.name}", "is full")
        self._set_full(True)
        self.world.after(self._random.choice(FULL_S), self._make_room)

    def _make_room(self):
        self.world.say(f"disk{self.machine.name}", "has room")
        self._set_full(False)

    def _set_full(self, is_full):
        self.machine.weather.is_full = is_full
        for ledger in self.ledgers:
            ledger.disk_is_full(is_full)
        self._tell_of_torn_writes()

    def _slow_flush(self):
        self.world.say(f"disk{self.machine.name}", "is slow")
        self.machine.weather.slow = 1
        self._tell_of_illness(False)

    def _tell_of_illness(self, fails):
        for ledger in self.ledgers:
            ledger.disk_is_ill(fails)

    def _stall(self):
        self._process.stall(self._random.uniform(*STALLS_S))
        self._tell_of_illness(False)

    def _fail_flush(self):
        self.world.say(f"disk{self.machine.name}", "is to fail")
        self.machine.weather.failing = self._random.choice((1, 1, 3))
        self._tell_of_illness(True)

    def _refuse_calls(self, calls=frozenset()):
        self.world.say(f"disk{self.machine.name}", "is to refuse")
        self.machine.weather.refuses = calls
        self.machine.weather.refusing = self._random.choice((1, 1, 3))
        self._tell_of_illness(True)

    def _take_little(self):
        self.world.say(f"disk{self.machine.name}", "takes little at a time")
        self.machine.weather.takes_little = True
        self._tell_of_torn_writes()

    def _tell_of_torn_writes(self):
        """A disk that is full behind a part of a write closes the queue, as one that fails does."""
        if self.machine.weather.takes_little and self.machine.weather.is_full:
            self._tell_of_illness(True)

    def _forget(self):
        """A flush fails, and what it has lost goes with the power, perhaps when the next process has found it
        in the page cache and built upon it.
        """
        self._fail_flush()
        self.machine.weather.fails_in = self._random.choice(("", "definitions"))
        self.machine.weather.deadly = self._random.choice((0, *MOMENTS))
        self._planned = [Faults._cut_power]

    def _refuse_and_kill(self):
        """The disk is full, and the process is killed soon after a call that is refused for it."""
        self._fill_disk()
        self.machine.weather.deadly = self._random.choice(MOMENTS)

    def _refuse_files_and_kill(self):
        """Files cannot be made, as where there are too many; what is written to others is taken. The process
        is killed very soon after that.
        """
        self._refuse_calls(MAKE_FILES)
        self.machine.weather.deadly = self._random.choice(SOON)


FAULTS = (
    Faults._kill, Faults._kill_at_a_call, Faults._kill_at_a_call, Faults._cut_power, Faults._stop,
    Faults._jump, Faults._fill_disk, Faults._slow_flush, Faults._fail_flush,
)
# Faults that a seed has besides, and in which share of the seeds: one more row of FAULTS would change all.
RARE_FAULTS = {
    Faults._stall: 0.2, Faults._refuse_calls: 0.15, Faults._take_little: 0.15, Faults._forget: 0.15,
    Faults._refuse_and_kill: 0.1, Faults._refuse_files_and_kill: 0.15,
    Faults._cut_power_behind_answers: 0.2}
