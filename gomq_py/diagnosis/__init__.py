"""Diagnosis: problems of a broker, and changes by an import of definitions; for the management door, and for
gomq-py-ctl with other brokers.
"""
