"""Recipes that ship with mtplx, one YAML file each."""
