"""A batch before it is stored: its checks, its producer, its transaction."""
