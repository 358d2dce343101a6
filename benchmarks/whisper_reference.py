"""Whisper's tokens and time against OpenAI's own code on the same weights, in one run.

python -m benchmarks.whisper_reference FILE...      # recordings of up to 30 s; the preset whisper_tiny
Needs the extras `pretrained` and `bench`, and `pip install --no-deps openai-whisper tiktoken more-itertools`. For each way of decoding: how
many recordings get the very same tokens, and seconds by the clock and of processor time for a second of sound. With silence behind a
recording in place of 30 s, greedy decoding of 30 s is what is compared with.
"""

import argparse
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.product import machine

PRESET = "whisper_tiny"
UNTIMED = {"without_timestamps": True}
WAYS: dict[str, tuple[dict[str, Any], str, str]] = {  # the reference's options; ours: of the model, of evaluate
    "greedy": (UNTIMED, "", "search: greedy"),
    "time stamps": ({}, ", times: true", "search: greedy"),
    "beam of 5": ({**UNTIMED, "beam_size": 5}, "", "search: beam, beam: 5"),
    "beam of 5, time stamps": ({"beam_size": 5}, ", times: true", "search: beam, beam: 5"),
    "greedy, 2 s of silence behind": (UNTIMED, ", silence: 2", "search: greedy"),
}


def ours(model: str, evaluate: str) -> Callable[[np.ndarray], list[int]]:
    """Samples of one recording, int16 at 16 kHz, to token numbers."""
    import tensorflow as tf

    from pipelines.config.load import from_text
    from pipelines.runs.launch import task_class

    experiment = from_text(f"task: speech.transcription\nmodel: {{name: whisper, preset: {PRESET}{model}}}\n"
                           f"data: {{source: none, validation: 0, test: 0}}\nevaluate: {{{evaluate}}}\n", check_paths=False).experiment
    task = task_class(experiment.task)(experiment)
    task.facts = task.splits().facts
    network = task.model()
    specs = [tf.TensorSpec([1, None], tf.int16), tf.TensorSpec([1], tf.int32)]

    @tf.function(autograph=False, input_signature=specs)
    def tokens(samples: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        return task.output.answer(network, task.prepare({"samples": samples, "length": length})[0])["tokens"][0]

    def run(samples: np.ndarray) -> list[int]:
        return [int(number) - 1 for number in tokens(samples[None], np.array([len(samples)], np.int32)) if number]

    run(np.zeros(16_000, np.int16))  # traces
    return run


def reference() -> Callable[[np.ndarray, dict[str, Any]], list[int]]:
    """(samples, options) to the token numbers of OpenAI's `decode`, with the preset's weights."""
    import keras_hub
    import torch
    import whisper

    backbone = keras_hub.models.Backbone.from_preset(str(Path.home() / ".keras/presets" / PRESET))
    width, heads, depth = backbone.hidden_dim, backbone.num_heads, backbone.num_layers
    network = whisper.model.Whisper(whisper.model.ModelDimensions(
        backbone.num_mels, backbone.max_encoder_sequence_length // 2, width, heads, depth, backbone.vocabulary_size,
        backbone.max_decoder_sequence_length, width, heads, depth)).eval()

    def put(to: Any, value: Any) -> None:
        with torch.no_grad():
            to.copy_(torch.from_numpy(np.asarray(value, np.float32).reshape(to.shape)))

    def norm(to: Any, layer: Any) -> None:
        put(to.weight, layer.gamma)
        put(to.bias, layer.beta)

    def dense(to: Any, layer: Any) -> None:
        put(to.weight, np.asarray(layer.kernel).reshape(to.weight.shape[::-1]).T)
        if to.bias is not None:
            put(to.bias, layer.bias)

    def attention(to: Any, layer: Any) -> None:
        for name in ("query", "key", "value"):
            dense(getattr(to, name), getattr(layer, f"_{name}_dense"))
        dense(to.out, layer._output_dense)

    def block(to: Any, layer: Any) -> None:
        attention(to.attn, layer._self_attention_layer)
        norm(to.attn_ln, layer._self_attention_layer_norm)
        if to.cross_attn is not None:
            attention(to.cross_attn, layer._cross_attention_layer)
            norm(to.cross_attn_ln, layer._cross_attention_layer_norm)
        dense(to.mlp[0], layer._feedforward_intermediate_dense)
        dense(to.mlp[2], layer._feedforward_output_dense)
        norm(to.mlp_ln, layer._feedforward_layer_norm)

    encoder, decoder = network.encoder, network.decoder
    for to, layer in ((encoder.conv1, backbone.encoder_conv_layer_1), (encoder.conv2, backbone.encoder_conv_layer_2)):
        put(to.weight, np.asarray(layer.kernel).transpose(2, 1, 0))
        put(to.bias, layer.bias)
    put(encoder.positional_embedding, backbone.encoder_position_embedding.position_embeddings)
    put(decoder.token_embedding.weight, backbone.decoder_embeddings.token_embedding.embeddings)
    put(decoder.positional_embedding, backbone.decoder_embeddings.position_embedding.position_embeddings)
    for to, layer in zip([*encoder.blocks, *decoder.blocks], [*backbone.encoder_transformer_layers, *backbone.decoder_transformer_layers]):
        block(to, layer)
    norm(encoder.ln_post, backbone.encoder_layer_norm)
    norm(decoder.ln, backbone.decoder_layer_norm)

    def run(samples: np.ndarray, options: dict[str, Any]) -> list[int]:
        sound = whisper.pad_or_trim(torch.from_numpy(samples.astype(np.float32) / 32768.0))
        chosen = whisper.DecodingOptions(language="en", fp16=False, **options)
        return list(whisper.decode(network, whisper.log_mel_spectrogram(sound, backbone.num_mels), chosen).tokens)

    return run


def timed(run: Callable[..., list[int]], *given: Any) -> tuple[list[int], np.ndarray]:
    """What it gives, and [seconds by the clock, of the processor]."""
    def now() -> np.ndarray:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return np.array([time.perf_counter(), used.ru_utime + used.ru_stime])

    began = now()
    return run(*given), now() - began


def main(files: list[Path]) -> None:
    from speech.data import audio

    sounds = [np.round(audio.read(path, 16_000) * 32767).astype(np.int16) for path in files]
    seconds, theirs = sum(map(len, sounds)) / 16_000, reference()
    for name, (options, model, evaluate) in WAYS.items():
        mine, spent, same = ours(model, evaluate), np.zeros([2, 2]), 0
        for sound in sounds:
            (first, one), (second, other) = timed(mine, sound), timed(theirs, sound, options)
            spent += [one, other]
            same += first == second
        own, other = spent / seconds
        print(f"{name}: {same} of {len(sounds)} alike; for a second of sound {own[0]:.3f} s by the clock, {own[1]:.3f} of processor time "
              f"(reference {other[0]:.3f}, {other[1]:.3f})", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    print(machine(), flush=True)
    main(parser.parse_args().files)
