"""The explorer page in a real Chromium: a package, so that its modules share one browser."""
