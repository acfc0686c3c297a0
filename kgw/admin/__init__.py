"""The side for people and their tools, over HTTP: health, metrics, JSON. Reads, never changes.

Nothing of it is imported unless kgw.admin.listeners is set.
"""
