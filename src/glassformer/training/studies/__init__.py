"""Many trainings: sweeps and ablation studies."""
