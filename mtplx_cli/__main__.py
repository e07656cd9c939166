"""`python -m mtplx` is the command `mtplx`."""

from mtplx.main import main

main()
