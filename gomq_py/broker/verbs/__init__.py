"""Verbs: carries out what clients may ask for in a vhost, for every door: declare, bind, publish and so on.

Each verb is one function, which checks the rights it needs and then acts on the vhost. Doors translate
between a protocol and these functions, and check no rights themselves.
"""
