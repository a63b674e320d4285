"""The client's calls, each one flow that a thread or an event loop drives."""
