"""dlx on the simulated driver, in a process of its own."""
