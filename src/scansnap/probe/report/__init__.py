"""The HTML report on a probe's data."""
