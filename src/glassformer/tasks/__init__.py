"""Tasks: tokens, right answers, domain, edge cases and input classes, independent of models."""

from .base import Task as Task
