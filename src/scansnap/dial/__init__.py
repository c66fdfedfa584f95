"""The dial: from the paper's model to a transformer, one assumption at a time."""
