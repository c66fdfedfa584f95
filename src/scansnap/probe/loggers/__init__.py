"""Where measurements go besides the record: flat dicts of numbers, and the loggers that receive them."""
