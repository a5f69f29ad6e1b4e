"""Studies of many training runs: sweeps and ablation studies."""
