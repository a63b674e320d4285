"""The client: what applications call."""
