"""The patterns as pure cores: they receive messages and the time, and return messages and events."""
