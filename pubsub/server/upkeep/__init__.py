"""What is done in the background: deleting, and looking after staged pieces."""
