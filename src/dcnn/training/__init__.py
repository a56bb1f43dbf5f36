"""Training (Sect. 5.1): objective, optimiser, loop, checkpoints."""
