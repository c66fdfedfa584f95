"""A probe's page: one HTML file that needs nothing else, to read and to show."""
