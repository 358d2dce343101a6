"""`python -m recsys.train [CONFIG] [key=value ...]`: trains a recommendation experiment; without CONFIG, synthetic interactions."""

from pipelines.commands.main import train_main

if __name__ == "__main__":
    train_main("recsys")
