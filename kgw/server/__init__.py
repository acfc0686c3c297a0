"""Sockets: listeners, connections, their limits and their end."""
