"""Measurements on training runs and on trained embedding tables, and their pictures."""
