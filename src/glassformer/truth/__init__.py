"""Ground truth: which wires of a model carry something, models in disguise, and how well a
method finds the wires.
"""
