"""The directories and the rows of topics and partitions."""
