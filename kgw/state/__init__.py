"""Small state that is stored: topics, configurations, ids, checkpoints."""
