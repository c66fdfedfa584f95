"""The base of the HTML reports: one file each, which opens offline."""
