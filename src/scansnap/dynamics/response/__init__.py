"""How attention answers to a decoder that learns: the linear response of the flow around frozen attention."""
