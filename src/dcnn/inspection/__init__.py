"""Looking inside: the feature graph of a sentence (Sect. 4.2) and what follows from it."""
