"""What a server does with each kind of request."""
