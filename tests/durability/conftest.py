"""Where the data folders of durability tests lie."""
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.conftest import HAS_FAILED
from tests.support import memory

# The disk of these is a model of one, or their own seam: what is flushed is what the model says, and a real
# flush of the folder below it is waited for in vain, some 21 000 times. Tests of processes that die keep the
# real one.
MODELLED = {
    "test_amqp_cuts", "test_broker_cuts", "test_broker_faults", "test_framed_log", "test_kill_shown",
    "test_kill_shown_mqtt", "test_store_cuts", "test_store_faults",
}


@pytest.fixture
def tmp_path(request, tmp_path):
    """In memory where the disk is a model; what a failed test leaves is copied to the usual place."""
    place = memory.folder()
    if place is None or request.path.stem not in MODELLED:
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(dir=place, prefix="gomq-tests-"))
    try:
        yield folder
        if request.node.stash.get(HAS_FAILED, True):
            shutil.copytree(folder, tmp_path, symlinks=True, dirs_exist_ok=True)
    finally:
        shutil.rmtree(folder)
