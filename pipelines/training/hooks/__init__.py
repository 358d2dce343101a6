"""What happens during training besides the steps; the loop calls each hook in its order."""
