"""Predictions as files: columns of one, and a folder of scored shards, here or on Ray."""
