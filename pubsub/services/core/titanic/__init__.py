"""The Titanic pattern: requests and replies that are kept on disk (RFC 9)."""
