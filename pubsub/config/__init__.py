"""Settings of every role: defaults, files, environment, and where things live."""
