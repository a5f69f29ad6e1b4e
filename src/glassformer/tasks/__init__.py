"""Tasks: tokens, right answers, domain, edge cases and classes. Nothing here depends on models."""

from .base import Task as Task
