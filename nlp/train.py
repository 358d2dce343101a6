"""`python -m nlp.train [CONFIG] [key=value ...]`: trains a text experiment; without CONFIG, the embedded quick start."""

from pipelines.commands.main import train_main

if __name__ == "__main__":
    train_main("nlp")
