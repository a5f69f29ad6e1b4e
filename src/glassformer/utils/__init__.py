"""Helpers for all packages: errors, files, limits, progress, numbers, results."""
