"""Displays of a training run: terminal, notebook and curve."""
