"""How many seeds the randomised durability tests run: few by default,
``GOMQ_DURABILITY_FACTOR=20`` times as many for a night. Interpreted it is half as many: the modules answer
the same, each seed takes three times as long, and the compiled ones have run all of them.
"""
import os

from gomq_py import build_info

FACTOR = float(os.environ.get("GOMQ_DURABILITY_FACTOR", "1"))
BASE = int(os.environ.get("GOMQ_DURABILITY_SEED", "0"))


def seeds(count):
    """Seeds to parametrise with; a failure's id names the seed."""
    share = 0.5 if build_info.interpreted_modules() else 1
    return range(BASE, BASE + max(1, round(count * FACTOR * share)))
