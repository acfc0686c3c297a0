"""The log files of one partition: they are read and changed, and snapshots lie beside them."""
