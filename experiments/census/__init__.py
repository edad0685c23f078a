"""The census: the number that multiplies q·k in every family of transformers."""
