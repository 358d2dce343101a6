"""A hook that writes down how runs end."""

import quartet
from sample_extension import Ends


class EndsHook(quartet.RunHook):
    """Adds a line to the file that monitor.ends names."""

    def ended(self, status, report):
        file = self.run.experiment.monitor.added(Ends).ends
        if file is not None:
            with open(file, "a", encoding="utf-8") as opened:
                opened.write(f"{self.run.name} {status}\n")
