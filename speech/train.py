"""`python -m speech.train [CONFIG] [key=value ...]`: trains a speech experiment; without CONFIG, on synthetic recordings."""

from pipelines.commands.main import train_main

if __name__ == "__main__":
    train_main("speech")
