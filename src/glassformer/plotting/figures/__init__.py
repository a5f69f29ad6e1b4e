"""Figures, a file a subject: each function draws what a view of lens/, or a run, has found."""
