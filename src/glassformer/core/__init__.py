"""Core of the package: model, weights, hooks, vocabulary, decoding and checkpoints."""
