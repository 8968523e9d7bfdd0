"""The command line: one file for each command; ``main`` is the entry."""
