"""The one SQLite file: opening it, its schema, its transactions."""
