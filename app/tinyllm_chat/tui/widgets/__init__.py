"""Small widgets: they get plain values, show them and post messages."""
