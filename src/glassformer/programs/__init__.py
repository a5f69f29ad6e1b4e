"""Programs: one file each, with a function that returns a Model whose weights were set by hand."""
