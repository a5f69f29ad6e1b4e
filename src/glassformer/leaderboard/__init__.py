"""AdderBoard, the contest of the smallest adders: its test, submission files, a table of adders."""
