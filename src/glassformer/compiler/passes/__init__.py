"""The compiler: a list of passes, one a file."""
