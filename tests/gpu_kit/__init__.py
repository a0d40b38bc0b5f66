"""The kit for a GPU machine without a network: its groups, its runner, its making."""
