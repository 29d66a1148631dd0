"""Operators' settings: policies, parameters of components (shovels, upstreams...), limits of vhosts and
users.
"""
