"""Figure functions, one module for each subject. Each draws the result of a view or of a run."""
