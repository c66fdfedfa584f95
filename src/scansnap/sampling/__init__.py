"""Random numbers and sequences drawn with them, the same whatever the device or grouping."""
