"""Transfers: dead letters, delayed messages, and the moves and copies that an operator asks for."""
