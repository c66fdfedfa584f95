"""What a run is made of: the page's set-up, read, checked and held against the caps."""
