"""Keep a client's state in a schema of the user's own PostgreSQL database (docs/explanation/databases.md)."""
