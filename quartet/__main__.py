"""`python -m quartet`: the command line."""

from pipelines.commands.main import main
from pipelines.machine.startup import current_folder_last

if __name__ == "__main__":
    current_folder_last()
    main()
