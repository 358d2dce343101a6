"""`python -m vision.train [CONFIG] [key=value ...]`: trains an image experiment; without CONFIG, the embedded digits."""

from pipelines.commands.main import train_main

if __name__ == "__main__":
    train_main("vision")
