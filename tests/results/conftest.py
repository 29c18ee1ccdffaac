"""The example for all tests of this folder."""

from .example import project as project
