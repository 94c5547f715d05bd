"""Recipes as TOML: fixed settings, search space and seeds for each cell of the paper's tables."""
