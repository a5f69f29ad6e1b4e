"""HTML displays of results in notebooks."""
