"""The verbs: each names a module of this package that has a `command`."""

VERBS = {
    "pull": "download a model of the catalogue",
    "inspect": "what is in a model file, and whether it will run",
    "bench": "how fast a model reads and writes here",
    "perplexity": "how well a model predicts a text",
    "doctor": "what a bug report needs to say about this machine",
}
