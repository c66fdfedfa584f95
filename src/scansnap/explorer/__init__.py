"""The explorer: attention scanning and snapping, one page that computes in the browser (``scansnap explorer``)."""
