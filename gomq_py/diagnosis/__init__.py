"""Finds problems of a broker, and the effects of an import, for the HTTP API and gomq-py-ctl."""
