"""Native functions a program is made of, each with a NumPy twin that says what it computes."""
