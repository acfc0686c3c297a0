"""What this node owns: partitions, groups and transactional ids, and whether it may serve them.

`placement` says which node owns a key, and which ownership of this node has it; an `Ownership` is
opened, released and closed as a whole; `NodeStatus` follows the lease of the backend.
"""
