"""An HTTP server that speaks the OpenAI and Anthropic APIs."""
