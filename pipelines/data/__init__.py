"""The common tf.data input layer: sources read by number, order as a pure function, batches for the step."""
