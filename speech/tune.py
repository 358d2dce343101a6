"""`python -m speech.tune CONFIG [key=value ...]`: searches the space in a speech experiment's tune section."""

from pipelines.commands.main import tune_main

if __name__ == "__main__":
    tune_main("speech")
