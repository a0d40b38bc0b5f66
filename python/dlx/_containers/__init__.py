"""Containers of tensors: those of Python, and those that libraries register."""
