"""Run code of other people in a sandbox, and limit the processes that do work for others."""
