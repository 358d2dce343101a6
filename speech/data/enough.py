"""Whether there is enough speech to learn to write it down from nothing. Imports no TensorFlow."""

from collections.abc import Sequence

HOURS = 10.0  # of speech from which a recogniser of any words may be worth something
OFTEN = 20.0  # times that each word is said on average, from which few words can be learned from little speech


def too_little(texts: Sequence[str], seconds: float) -> str | None:
    """What to say of training recordings that a recogniser cannot learn from; None where they may do.

    Args:
        texts: transcripts.
        seconds: of all recordings.
    """
    said = [word for text in texts for word in text.lower().split()]
    different = len(set(said))
    if not said or seconds >= 3600 * HOURS or len(said) >= OFTEN * different:
        return None
    length = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
    return (f"{len(texts):,} clips, {length} with {different:,} different words, are too few for a recogniser that learns from nothing: "
            f"it needs {HOURS:.0f} hours and more, or few words said often; expect most words to be wrong, and use a pretrained encoder "
            "(wav2vec 2.0, Whisper), which this suite has not")
