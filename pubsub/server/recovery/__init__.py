"""Topics that an operator abandoned, and topics that cannot be read."""
