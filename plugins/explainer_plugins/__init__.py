"""Every built-in encoder, method and score, each an ordinary plugin."""
