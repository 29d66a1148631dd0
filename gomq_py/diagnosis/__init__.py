"""Diagnosis: finds problems of a broker, and changes by an import of definitions, for the management door and
gomq-py-ctl.
"""
