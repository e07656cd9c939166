"""Tests of mtplx.runtime.sampling."""
