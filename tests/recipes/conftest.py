"""The small tables and results for all tests of this folder."""

from .project import project as project
