"""What is done to a program between its source and its weights, one pass a file."""
