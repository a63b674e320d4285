"""Compare a client's state in PostgreSQL with SQLite, and with a plain inbox table beside Redis streams or NATS."""
