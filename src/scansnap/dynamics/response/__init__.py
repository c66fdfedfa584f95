"""The linear response of attention to a learning decoder, around frozen attention."""
