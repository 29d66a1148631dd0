"""Operators' settings for many entities: policies, parameters of components, limits of vhosts and users."""
