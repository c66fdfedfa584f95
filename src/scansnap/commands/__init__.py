"""What the command line does; ``cli.py`` only parses and dispatches here."""
