"""The command line: ``app`` parses and dispatches, one file for what each command does."""
