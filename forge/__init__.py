"""From a checkpoint to a verified, published artifact."""
