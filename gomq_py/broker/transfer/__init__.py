"""Transfers move messages between queues: dead letters, delayed messages, and messages that operators move or
copy.
"""
