"""Reliable requests, pure: states, decisions and times; no sockets, threads, files, clocks or chance."""
