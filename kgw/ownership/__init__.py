"""Ownership of partitions, groups and transactional ids.

A `Placement` finds the node that owns a key, and the `Ownership` on this node that contains it. An
`Ownership` is one bundle of keys, which is opened and closed as a whole. `NodeStatus` says whether
this node may serve its bundles, according to the lease of the backend.
"""
