"""What several figures are made from and drawn alike: their runs, made once and kept, and the curves of them."""
