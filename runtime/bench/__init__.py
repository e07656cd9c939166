"""Measuring what a model costs and gains on this machine: speed, rounds, acceptance, prefill and memory."""
