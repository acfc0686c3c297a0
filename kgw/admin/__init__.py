"""The admin listener: health, metrics and JSON over HTTP, for people and their tools.

It only reads.

Its modules are imported only if kgw.admin.listeners is set.
"""
