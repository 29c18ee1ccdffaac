"""Speed and memory, measured and printed, never asserted: `make benchmark`."""
