"""The steps before a batch is stored: its checks, its producer, its transaction."""
