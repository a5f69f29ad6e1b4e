"""One hand-made program a file: functions that return a Model whose weights were set by hand."""
