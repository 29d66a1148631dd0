"""Cluster: a leader streams every change of its data folder to followers, which keep a copy of the folder."""
