"""What `scripts/bench-walk` and `scripts/test-kill` are made of. Runs inside a sandbox's network, on the standard library alone."""
