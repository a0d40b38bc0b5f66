"""What builds and checks the site of documents; `make docs` runs it."""
