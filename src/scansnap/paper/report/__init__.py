"""The single-file HTML report, and the making of everything in it."""
