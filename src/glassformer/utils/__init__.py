"""Helpers that every package may use: errors, files, limits, progress, numbers, results."""
