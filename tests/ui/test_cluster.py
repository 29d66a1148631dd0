"""The page of a cluster: its nodes as they are, hostile names as text, and a node that is forgotten."""
import pytest
from playwright.sync_api import expect

from gomq_py.cluster.core.records import NodeRecord
from tests.support.elected import Cluster
from tests.support.etcd_process import EtcdProcess
from tests.support.waiting import wait_until

LOST = "e" * 32
HOSTILE = "<script>alert(1)</script>'\"`><img src=x onerror=alert(1)>"


@pytest.fixture
def etcd(tmp_path):
    with EtcdProcess(tmp_path) as etcd:
        yield etcd


@pytest.fixture
def leader(tmp_path, etcd):
    """The leader of two nodes, while etcd knows a third one, which is lost."""
    with Cluster(tmp_path, etcd, 2) as cluster:
        leader = cluster.wait_in_sync(2)
        record = NodeRecord(HOSTILE, "lost:5679", {"[amqp] heartbeat": "7", "version": HOSTILE})
        etcd.put(f"gomq/nodes/{LOST}".encode(), record.encode())
        wait_until(lambda: len(leader.figures["nodes"]) == 3)
        yield leader


@pytest.mark.needs_program("etcd")
def test_nodes_are_shown_as_they_are_and_a_lost_one_is_forgotten(browser_context, leader):
    ui = browser_context(f"http://127.0.0.1:{leader.ports['http']}")
    page = ui.page
    ui.open("#/cluster")

    expect(page.get_by_role("row").filter(has_text="leader")).to_contain_text("leading")
    expect(page.get_by_role("row").filter(has_text="streaming")).to_contain_text("in sync")
    lost = page.get_by_role("row").filter(has_text="lost:5679")
    expect(lost).to_contain_text(HOSTILE)
    expect(lost).to_contain_text("not in sync")
    expect(page.locator("#main")).to_contain_text("[amqp] heartbeat is 7, here 60")
    expect(page.locator("#main")).to_contain_text("2 of 3")

    lost.get_by_label("Choose this row").check()
    page.get_by_role("button", name="Forget").click()
    page.get_by_role("dialog").get_by_role("button", name="Forget").click()

    expect(lost).to_have_count(0)
    assert len(leader.figures["nodes"]) == 2


@pytest.mark.needs_program("etcd")
def test_node_that_is_connected_offers_nothing_to_forget(browser_context, leader):
    ui = browser_context(f"http://127.0.0.1:{leader.ports['http']}")
    ui.open("#/cluster")

    ui.page.get_by_role("row").filter(has_text="streaming").get_by_label("Choose this row").check()

    expect(ui.page.get_by_text("1 chosen")).to_be_visible()
    expect(ui.page.get_by_role("button", name="Forget")).to_have_count(0)
