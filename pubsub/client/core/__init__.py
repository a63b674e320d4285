"""Hold the client's rules, without sockets, threads, files and clocks."""
