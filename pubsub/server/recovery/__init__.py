"""What an operator gave up, and what cannot be read."""
