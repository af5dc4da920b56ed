"""Records: the protocol in every order, and what carries it out."""
