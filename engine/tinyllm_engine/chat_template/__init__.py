"""Chat templates: text that knows where it came from.

Read `template.py` first. A file's template is rendered by Jinja in a sandbox (`environment.py`) whose text keeps marks
of its origin (`marked_text.py`); special tokens are then found in the template's own text only.
"""

from tinyllm_engine.chat_template.marked_text import MarkedText
from tinyllm_engine.chat_template.template import ChatTemplate, Prompt, Segment

__all__ = ["ChatTemplate", "MarkedText", "Prompt", "Segment"]
