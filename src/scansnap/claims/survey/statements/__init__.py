"""One statement, or a few that share their runs, to a file."""
