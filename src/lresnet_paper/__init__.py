"""The reproduction of the paper: its tables, recipes, sweeps, benchmarks and claims, on top of lresnet."""
