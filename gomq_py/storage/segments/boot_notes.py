"""Boot notes: keeps what recovery has found until the end of the boot."""


class BootNotes:
    """What recovery has found. ``settled``: {queue folder: {segment number: (Segment or None, runs)}}, see
    note_settled(). ``unsealed``: the stores.unsealed.Unsealed if a follower was promoted, else None.
    """

    def __init__(self):
        self.settled = {}
        self.unsealed = None
        self._has_ended = False

    def note_settled(self, folder, number, segment, runs):
        """Remember for Store.has_record() that all messages of a segment are acked. ``segment``: None if the
        msgs file is missing; then ``runs`` has the acked ranges of the acks file.
        """
        if not self._has_ended:
            self.settled.setdefault(folder, {})[number] = segment, runs

    def end(self):
        """Forget everything at the end of the boot."""
        self._has_ended = True
        self.settled = {}
        unsealed, self.unsealed = self.unsealed, None
        if unsealed is not None:
            unsealed.close()
