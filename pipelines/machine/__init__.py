"""The machine: devices, GPUs, precision, memory, start-up, and what a run was made with."""
