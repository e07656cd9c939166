"""`mtplx bench` and its subcommands, one file each."""
