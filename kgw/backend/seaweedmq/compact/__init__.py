"""Rewrites log files: joins, compacts or recompresses them."""
