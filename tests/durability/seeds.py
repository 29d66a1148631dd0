"""How many seeds the randomised durability tests run: few by default,
``GOMQ_DURABILITY_FACTOR=20`` times as many for a night.
"""
import os

FACTOR = float(os.environ.get("GOMQ_DURABILITY_FACTOR", "1"))
BASE = int(os.environ.get("GOMQ_DURABILITY_SEED", "0"))


def seeds(count):
    """Seeds to parametrise with; a failure's id names the seed."""
    return range(BASE, BASE + max(1, round(count * FACTOR)))
