"""Client of etcd 3.4 and later, over its JSON gateway: the cluster's coordinator.

``messages`` makes and reads the JSON. ``connection`` does HTTP over one socket. ``client`` sends requests to
the servers in turn. ``watch`` reports changes. None of these knows the meaning of the values. Imported only
when clustering is on.
"""
