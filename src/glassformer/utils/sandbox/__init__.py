"""Sandbox for untrusted code, and resource limits of worker processes."""
