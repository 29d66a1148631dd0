"""Judgement: what is wrong with a broker, and what an import of definitions would change; for the management
door, and for gomq-py-ctl where it speaks to another broker.
"""
