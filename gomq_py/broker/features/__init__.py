"""Features: the arguments and policy keys of queues, exchanges and consumers, one file for each.

A file has one feature's names, checks, texts and merge rules. A Feature (``feature``) describes one setting;
``table`` collects all of them. Checks of declares, consumers and policies, the settings of queues and flags
of ``gomq-py-ctl`` are derived from these descriptions. No module here imports a queue: the code that applies
features imports this package.
"""
