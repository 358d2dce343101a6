"""Using a finished run: judging again, predicting, exporting."""
