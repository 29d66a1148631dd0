"""Logs and system figures."""
