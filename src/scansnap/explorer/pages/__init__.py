"""What the page shows besides the run itself: theory, verdicts, text models, the tour, files."""
