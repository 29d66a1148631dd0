"""Holds operators' settings: policies, parameters of components, limits of vhosts and users."""
