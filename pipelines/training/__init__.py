"""The training harness: devices, the pure step, the loop, its state, schedules, callbacks."""
