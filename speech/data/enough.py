"""Whether there is enough speech to train a recogniser from scratch. Imports no TensorFlow."""

from collections.abc import Sequence

HOURS = 10.0  # of speech from which an open-vocabulary recogniser may be useful
OFTEN = 20.0  # mean occurrences of a word from which few words can be learned from little speech


def too_little(texts: Sequence[str], seconds: float) -> str | None:
    """A warning where the training recordings are too few for a recogniser; None where they may do.

    Args:
        texts: transcripts.
        seconds: of all recordings.
    """
    words = [word for text in texts for word in text.lower().split()]
    different = len(set(words))
    if not words or seconds >= 3600 * HOURS or len(words) >= OFTEN * different:
        return None
    length = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
    return (f"{len(texts):,} clips, {length} with {different:,} different words, are too few to train a recogniser from scratch: "
            f"it needs {HOURS:.0f} hours and more, or few words spoken often; expect most words to be wrong, and use a pretrained encoder "
            "(model: {name: pretrained, preset: ...})")
