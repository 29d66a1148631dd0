"""Features: what a queue, exchange or consumer can be told, each in one file: names, checks, words, how
values merge.

``feature`` says what a row has, ``table`` collects them. Arguments of declares and consumers, policies,
settings of queues and flags of ``gomq-py-ctl`` are derived. Below all that acts on them: nothing here knows a
queue.
"""
