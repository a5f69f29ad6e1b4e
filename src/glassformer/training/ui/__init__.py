"""Displays of a training run in a terminal or notebook, and the accuracy curve."""
