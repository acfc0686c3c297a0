"""Segments on a local disk in Kafka's own layout, and SQLite beside them."""
