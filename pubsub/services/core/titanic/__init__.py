"""The Titanic pattern: requests and replies on disk (RFC 9)."""
