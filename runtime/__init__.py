"""Loading, decoding and serving models with their own MTP heads."""
