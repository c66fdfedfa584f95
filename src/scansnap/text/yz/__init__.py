"""The YZ model over a whole vocabulary."""
