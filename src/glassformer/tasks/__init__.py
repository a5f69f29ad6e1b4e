"""What is right: tokens, truth, domain, edge cases, classes of input. Tasks know nothing of
transformers.
"""

from .base import Task as Task
