"""Classify many files: in shards, in this process or on a Ray cluster."""
