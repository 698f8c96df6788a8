"""Grammars: what an answer must look like, character by character.

rules.py        a grammar as data: rules, alternatives, items
gbnf.py         llama.cpp's notation of grammars
json_schema.py  JSON schemas, written in that notation
utf8.py         sets of characters as automata over bytes
automaton.py    the pushdown automaton over bytes: tokens may end within a character
pieces.py       what a vocabulary's tokens are made of, as a trie
constraint.py   which tokens may come next
"""

from tinyllm_engine.grammar.constraint import Grammar as Grammar
from tinyllm_engine.grammar.constraint import GrammarConstraint as GrammarConstraint
from tinyllm_engine.grammar.gbnf import parse_gbnf as parse_gbnf
from tinyllm_engine.grammar.json_schema import json_schema_to_gbnf as json_schema_to_gbnf
