"""Makes the references in this folder importable from the folders below it."""
