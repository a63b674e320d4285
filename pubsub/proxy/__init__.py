"""The proxy: finds the server that owns a topic."""
