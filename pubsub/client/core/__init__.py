"""The client's rules, without a socket, a thread, a file or a clock."""
