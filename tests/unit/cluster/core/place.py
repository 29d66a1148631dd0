"""Place: etcd's model, and electors that read it."""
from gomq_py.cluster.core.elector import Bootstrap, Lead
from gomq_py.cluster.core.records import InSyncRecord, LeaderRecord
from tests.support.etcd_model import EtcdModel

A, B, C, CLUSTER, OTHER = (letter * 32 for letter in "abcde")


class Place:
    """etcd's model, and electors that read it."""

    def __init__(self):
        self.now_s = 100.0
        self.etcd = EtcdModel(lambda: self.now_s)

    def keep(self, epoch=5, members=(A, B), cluster=CLUSTER):
        """A cluster without a leader, whose members have this epoch."""
        self.etcd.put("cluster", cluster.encode())
        self.etcd.put("isr", InSyncRecord(epoch, dict.fromkeys(members, epoch)).encode())

    def led_by(self, node, epoch=5):
        """Another node leads."""
        lease = self.etcd.grant(5)
        self.etcd.put("leader", LeaderRecord(node, epoch, f"{node[0]}:1").encode(), lease)
        return lease

    def decides(self, elector, **arguments):
        """What the elector decides now."""
        return elector.viewed(self.etcd.read(), self.now_s, elector.revision, **arguments)

    def wins(self, elector):
        """Let an elector be elected. Returns its Lead."""
        campaign = self.decides(elector)
        elector.lease = self.etcd.grant(5)
        extra = {"new_cluster_id": CLUSTER} if isinstance(campaign, Bootstrap) else {}
        outcome = self.etcd.transact(campaign.transaction(elector.lease, **extra))
        lead = elector.viewed(outcome.view, self.now_s, elector.revision)
        assert outcome.is_done and isinstance(lead, Lead)
        elector.folder(lead.cluster, lead.epoch)
        return lead
