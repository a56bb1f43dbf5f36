"""Predictions for many texts: lines, columnar files, and folders of scored shards."""
