"""A topic and its logs as values, without anything around them."""
