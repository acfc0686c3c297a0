"""The state store in SQL databases: one schema, numbered migrations, SQLite as the default."""
