"""Measurements on training runs and on trained embedding tables, and their pictures.

What a log, text, checkpoint or model lacks is refused by a ValueError that names it; docstrings do not say it again.
"""
