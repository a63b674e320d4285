"""What the patterns decide: pure, fed messages and the time."""
