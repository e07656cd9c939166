"""Back end choice and kernels, each with a plain twin. Imports nothing of mtplx but `contracts`."""
