"""Topics: the catalog that finds them, the manager that changes them, and the partitions here."""
