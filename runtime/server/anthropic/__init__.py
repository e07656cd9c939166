"""Anthropic's API: messages, streamed or whole, and their tokens counted."""
