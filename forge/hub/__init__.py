"""Checkpoints on the Hugging Face hub: metadata, downloads and searches."""
