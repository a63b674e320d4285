"""Reliable requests as pure functions: states, decisions and times; no sockets, threads, files, clocks or chance."""
