"""Visits: how many there are until something that grows is a finding."""
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.simulation.book import Book
from tests.simulation.network import Network
from tests.simulation.visits import Visits
from tests.simulation.world import World


class CountedVisits(Visits):
    """Without a broker: after each visit there are as many files as ``files`` says."""

    def __init__(self, world, files):
        super().__init__(world, Network(world), Book(world), [], Counter())
        self.files = list(files)

    def _wait(self, is_over):
        return True

    def _part(self):
        pass

    def _look(self):
        return Counter(files=self.files.pop(0))


@pytest.mark.parametrize("files, unseen, found", [
    ([9, 1, 2, 3, 3, 9], 1, []),
    ([9, 1, 2, 3, 4, 4, 9], 1, []),
    ([9, 1, 2, 3, 4, 5, 6, 6, 9], 1, []),
    ([9, 1, 2, 3, 4, 5, 6, 7, 9], 1, ["files: 1, 2, 3, 4, 5, 6, 7"]),
])
def test_what_has_grown_each_time_is_found_if_it_goes_on_to_grow(files, unseen, found):
    world = World(1)
    visits = CountedVisits(world, files)

    visits.run(SimpleNamespace(hub=SimpleNamespace(loop=SimpleNamespace(left=list))))

    assert len(visits.files) == unseen
    assert [finding.split("is kept: ")[1] for finding in world.findings] == found
