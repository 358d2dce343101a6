"""The machine: devices, GPUs, precision, memory, start-up, and the environment of a run."""
