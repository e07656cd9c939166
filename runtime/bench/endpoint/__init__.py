"""The server in one process and its clients in another, for `mtplx bench serve`."""
