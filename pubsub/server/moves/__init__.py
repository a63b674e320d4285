"""Topics on their way from one server to another."""
