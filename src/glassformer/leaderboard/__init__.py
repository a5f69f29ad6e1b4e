"""AdderBoard, a contest for the smallest adders: its test, submission files, a table of adders."""
