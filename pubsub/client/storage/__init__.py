"""What the client keeps on disk."""
