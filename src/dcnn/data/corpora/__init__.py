"""The corpora of the experiments: where they come from, and their formats."""
