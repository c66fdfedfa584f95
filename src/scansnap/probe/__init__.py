"""Watching other people's models: which attention they compute, and what is in it, without a trace in the training."""
