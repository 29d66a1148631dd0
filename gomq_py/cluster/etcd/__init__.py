"""Client of etcd 3.4 and later, over its JSON gateway: the cluster's coordinator.

messages makes and reads the JSON, connection does HTTP over one socket, client asks the servers in turn,
watch tells of changes. Nothing here knows what the values mean. Imported only when clustering is on.
"""
