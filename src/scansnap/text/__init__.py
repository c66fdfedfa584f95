"""Language models for real text: the original transformer and the YZ model over a whole vocabulary."""
