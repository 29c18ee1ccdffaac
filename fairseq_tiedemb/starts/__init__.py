"""Turns a trained model into the start of another training, with another dictionary or other tying.

trained   the model of a checkpoint, models with other options, and the checkpoint of a start
extend    rows by word for another dictionary         tie   one table of two, and two of one
"""
