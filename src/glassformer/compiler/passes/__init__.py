"""The compiler's passes, one per file."""
