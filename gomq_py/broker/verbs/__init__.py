"""Verbs: a client's operations in a vhost, for every door: declare, bind, publish, take and so on.

Each verb is one function, which checks the rights it needs and then acts. Above the vhost, below the doors,
which translate between a protocol and these functions and check no rights themselves.
"""
