"""Pretrained encoders: where they come from, how they are fine-tuned, and their features."""
