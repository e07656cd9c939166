"""Putting an artifact on the Hugging Face hub."""
