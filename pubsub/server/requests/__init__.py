"""The server's handling of each kind of request."""
