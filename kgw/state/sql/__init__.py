"""The state store over SQL databases: one schema, numbered migrations, SQLite as the default."""
