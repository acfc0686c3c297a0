"""Native offsets: who assigns them, how far they are durable, and where to go on after a stop."""
