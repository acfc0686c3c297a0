"""Topics: the catalog finds them, the manager changes them, and their partitions are here."""
