"""Topics: the catalog, a topic, and holds on its records."""
