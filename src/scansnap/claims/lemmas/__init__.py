"""The lemmas, and what is conserved."""
