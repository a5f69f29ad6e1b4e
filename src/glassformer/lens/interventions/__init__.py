"""Interventions on a run: ablation, patching, attribution by gradients, swapped tokens."""
