"""Transformers in their usual parametrisation, to compare with."""
