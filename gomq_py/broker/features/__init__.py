"""Features: the arguments and policy keys of queues, exchanges and consumers, one file for each.

A file has one feature's names, checks, texts and merge rules. A Feature (module ``feature``) describes one
setting; ``table`` collects all of them. From these the broker derives the checks of declares, consumers and
policies, the settings of queues, and the flags of ``gomq-py-ctl``. No module here imports a queue: the code
that applies features imports this package.
"""
