"""The theorems: a file each, or a folder where one says several things."""
