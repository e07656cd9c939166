"""The `mtplx forge` commands, one file each."""
