"""Routing: from an exchange to destinations, and cached routes."""
