"""What dlx asks other libraries in Python: importers, casts, refusals, hints."""
