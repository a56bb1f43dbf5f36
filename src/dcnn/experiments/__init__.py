"""The paper's experiments: what a run leaves behind, and the tables made from it."""
