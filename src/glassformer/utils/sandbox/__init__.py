"""Sandbox for untrusted code, and resource limits for worker processes."""
