"""Known circuits: ground truth of a model, obfuscated copies, and scores of claimed edges."""
