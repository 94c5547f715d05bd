"""Recipes: what each published number needs, as TOML."""
