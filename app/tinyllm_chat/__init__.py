"""Terminal chat with a language model that runs on this machine."""

__version__ = "0.1.0"
