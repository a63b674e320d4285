"""Run the calls of a client: each is one flow."""
