"""The transfer of topics from one server to another."""
