"""Three real nodes, a real etcd and real clients, through rounds of faults that a seed chooses."""
