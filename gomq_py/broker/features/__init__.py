"""Features: the arguments and policy keys of queues, exchanges and consumers. Each file has one feature's
names, checks, words and merge rules.

``feature`` defines a row, ``table`` collects the rows; arguments of declares and consumers, policies,
settings of queues and flags of ``gomq-py-ctl`` are derived from the rows. No module here imports a queue: the
code that applies features imports this room.
"""
