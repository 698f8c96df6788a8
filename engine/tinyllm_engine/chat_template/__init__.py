"""Chat templates: text that knows where it came from.

Read `template.py` first. A file's template is rendered by Jinja in a sandbox (`environment.py`) whose text keeps marks
of its origin (`marked_text.py`); special tokens are then found in the template's own text only. Files without one get
what their tokens imply (`choice.py`, `formats/`); reasoning is told from the answer by the template's marks
(`thinking.py`, `splitter.py`).
"""

from tinyllm_engine.chat_template.choice import TemplateChoice, choose_template
from tinyllm_engine.chat_template.marked_text import MarkedText
from tinyllm_engine.chat_template.splitter import Part, Splitter
from tinyllm_engine.chat_template.template import ChatTemplate, Prompt, Segment

__all__ = [
    "ChatTemplate",
    "MarkedText",
    "Part",
    "Prompt",
    "Segment",
    "Splitter",
    "TemplateChoice",
    "choose_template",
]
