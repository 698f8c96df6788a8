"""What layers are made of: one module per kind of part, with its tensors, its settled numbers and how it is read.

Everything that a family's rules decide is decided when a part is read; the forward pass only looks at parts.
"""
