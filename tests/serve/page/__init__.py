"""The explorer page in a real Chromium: a package, since its modules share one browser."""
