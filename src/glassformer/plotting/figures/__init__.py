"""Figures, one file for each subject. Each function draws the result of a view or of a run."""
