"""Ownership of partitions, groups and transactional ids.

A `Placement` maps a key to the node that owns it, and to the `Ownership` of this node that has it.
An `Ownership` is one bundle of keys, opened and closed as a whole. `NodeStatus` says whether this
node may serve its bundles: it follows the lease of the backend.
"""
