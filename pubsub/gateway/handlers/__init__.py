"""What requests do, by what they are about."""
