"""Small state that must survive: topics, configurations, ids, checkpoints."""
