"""The front end on clips of 2 s: in graph, and by librosa through py_function, in one run; and the largest difference.

python -m benchmarks.speech_frontend            # about 20 s
Log-mel of 16 kHz clips, 25 ms windows, 10 ms hop, 64 bands; one clip a call and 64. Medians over rounds in turn.
"""

import json
import statistics
import time
from collections.abc import Callable

import librosa
import numpy as np
import tensorflow as tf

from speech.data.features import FrontEnd
from speech.settings import Frontend

RATE, SECONDS, ROUNDS = 16_000, 2, 7


def by_librosa(front_end: FrontEnd) -> Callable[[np.ndarray], np.ndarray]:
    settings = front_end.settings

    def features(samples: np.ndarray) -> np.ndarray:
        mel = librosa.feature.melspectrogram(
            y=samples, sr=RATE, n_fft=front_end.fft, hop_length=front_end.hop, win_length=front_end.window, n_mels=settings.mels,
            fmin=settings.low, fmax=settings.high, center=True, pad_mode="constant", power=2.0)
        return librosa.power_to_db(mel, ref=1.0, amin=1e-10, top_db=settings.top_db).T

    return features


def timed(call: Callable[[], object], times: int) -> float:
    """ms a call."""
    began = time.perf_counter()
    for _ in range(times):
        call()
    return 1000 * (time.perf_counter() - began) / times


def main() -> None:
    rng = np.random.default_rng(0)
    envelope = np.abs(np.sin(np.arange(RATE * SECONDS) / 3000.0))
    clips = tf.constant((rng.normal(0, 0.1, [64, RATE * SECONDS]) * envelope).astype(np.float32))
    lengths = tf.fill([64], RATE * SECONDS)
    front_end = FrontEnd(Frontend(mels=64), RATE)
    peer = by_librosa(front_end)
    graph = tf.function(front_end, autograph=False)
    through = tf.function(lambda clip: tf.py_function(lambda one: peer(one.numpy()), [clip], tf.float32), autograph=False)
    difference = max(float(np.abs(through(clip).numpy() - graph(clip[None], lengths[:1])[0].numpy()).max()) for clip in clips[:8])
    graph(clips, lengths)
    times: dict[str, list[float]] = {"graph, one clip": [], "graph, of 64": [], "librosa through py_function": []}
    for _ in range(ROUNDS):
        times["graph, one clip"].append(timed(lambda: graph(clips[:1], lengths[:1]), 20))
        times["graph, of 64"].append(timed(lambda: graph(clips, lengths), 3) / 64)
        times["librosa through py_function"].append(timed(lambda: through(clips[0]), 10))
    found = {name: statistics.median(values) for name, values in times.items()}
    slow = found["librosa through py_function"]
    print(json.dumps({"ms a clip": {name: round(value, 3) for name, value in found.items()},
                      "times as fast, one clip": round(slow / found["graph, one clip"], 1),
                      "times as fast, of 64": round(slow / found["graph, of 64"], 1), "largest difference, dB": difference}))


if __name__ == "__main__":
    main()
