"""Messages that go from where they lie to somewhere else: dead letters, delayed messages, moves and copies that an operator asked for."""
