"""Operators' settings: policies, parameters (shovels, upstreams...), limits of vhosts and users."""
