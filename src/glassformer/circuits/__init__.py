"""Ground truth: the wires of a model, models in disguise, and how well a method finds wires."""
