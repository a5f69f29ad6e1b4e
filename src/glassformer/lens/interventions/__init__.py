"""Changing a run to see what matters: take a part out, put another run's in, move an embedding."""
