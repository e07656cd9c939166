"""Data and law of model folders: families, weights, contracts, inspection. Imports no MLX."""
