"""Checks SeaweedFS at the start and while a gateway runs."""
