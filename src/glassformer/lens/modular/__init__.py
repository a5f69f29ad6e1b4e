"""Analysis of modular addition: frequencies, clock or pizza, neurons, losses."""
