"""Tensors through the engines that exist; `make engines` installs them."""
