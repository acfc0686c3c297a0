"""The interface for people and their tools, over HTTP: health, metrics, JSON. Read-only.

No module of it is imported unless kgw.admin.listeners is set.
"""
