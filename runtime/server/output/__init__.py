"""From a model's text to the parts of an answer: reasoning, text and tool calls."""
