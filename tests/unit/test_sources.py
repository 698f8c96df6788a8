"""The text of the chat program as data: what a module keeps to itself, it uses."""

from __future__ import annotations

import ast
from pathlib import Path

import tinyllm_chat


def unused(tree: ast.Module) -> set[str]:
    """Functions, classes and constants of a module that are private and only defined."""
    defined: set[str] = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                defined.add(name)
            case ast.Assign() | ast.AnnAssign():
                defined |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    used = {
        each.attr if isinstance(each, ast.Attribute) else each.id
        for each in ast.walk(tree)
        if isinstance(each, ast.Attribute) or (isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))
    }
    return {name for name in defined - used if name.startswith("_") and not name.startswith("__")}


def test_what_is_private_is_used() -> None:
    for path in Path(tinyllm_chat.__path__[0]).rglob("*.py"):
        names = unused(ast.parse(path.read_text(encoding="utf-8")))
        assert not names, path


def test_what_nobody_uses_is_found() -> None:
    text = "_A = 1\n_B = 2\ndef _f(): return _B\nclass _C:\n    def _g(self): pass\n__all__ = ()\ndef g(): pass"
    assert unused(ast.parse(text)) == {"_A", "_f", "_C"}
