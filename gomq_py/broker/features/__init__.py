"""Features: the arguments and policy keys of queues, exchanges and consumers, each in one file: names,
checks, words, merge rules.

``feature`` defines a row, ``table`` collects them. Arguments of declares and consumers, policies, settings of
queues and flags of ``gomq-py-ctl`` are derived. Below the code that applies them: no module here imports a
queue.
"""
