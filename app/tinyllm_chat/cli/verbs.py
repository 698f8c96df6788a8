"""The verbs: each names a module of this package that has a `command`."""

VERBS = {
    "pull": "download a model of the catalogue",
    "chats": "list and search the chats that are kept",
    "export": "write a chat as Markdown, as a web page or as JSON",
    "import": "keep the chat in a document that was exported",
    "inspect": "what is in a model file, and whether it will run",
    "bench": "how fast a model reads and writes here",
    "perplexity": "how well a model predicts a text",
    "serve": "the chat in a browser on this machine",
    "doctor": "what a bug report needs to say about this machine",
}
