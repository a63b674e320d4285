"""The relay: sends the outgoing rows of a database, each once, as a client whose state is in the same database."""
