"""One update from several parts of a batch: of several processes, and of one that takes its part in turns."""
