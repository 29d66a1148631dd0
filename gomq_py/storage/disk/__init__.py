"""Disk: changes files and folders, and manages the data folder."""
