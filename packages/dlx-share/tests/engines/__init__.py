"""Tensors through the engines that exist; `tests/tasks.py engines` installs them."""
