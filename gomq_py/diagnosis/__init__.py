"""Diagnosis: finds problems of a broker, and what an import of definitions would change, for the HTTP API and
gomq-py-ctl.
"""
