"""TLS for listeners: contexts from Kafka's settings, names of clients, reload without a restart."""
