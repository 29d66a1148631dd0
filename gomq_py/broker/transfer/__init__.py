"""Transfers move messages: dead letters, delayed messages, and what operators move or copy."""
