"""Transfers: dead letters, delayed messages, and operators' moves and copies."""
