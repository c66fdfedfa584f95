"""The explorer: attention scanning and snapping, live in a browser (``scansnap serve``)."""
