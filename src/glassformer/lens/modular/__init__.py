"""Modular addition taken apart: frequencies, clock or pizza, neurons, losses."""
