"""What the tests share: tiny random models, damaged folders, trained checkpoints, scripts."""
