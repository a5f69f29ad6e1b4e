"""The transformer: model, weights, hooks, vocabulary, decoding and checkpoints."""
