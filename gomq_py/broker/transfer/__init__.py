"""Moves messages between queues: dead letters, delayed messages, operators' moves and copies."""
