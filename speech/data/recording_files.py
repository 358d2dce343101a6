"""Recordings in files: read by number, their lengths from the headers alone, speakers from their names."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.data.fingerprint import of_files, times
from pipelines.data.names import groups_in_names
from speech.data import audio
from speech.data.features import to_int16
from speech.data.recordings import Facts, Recordings
from speech.settings import SpeechData

Part = tuple[Path, float, float | None]  # path, start and duration in s; None: to the end


def with_speakers(facts: Facts, data: SpeechData) -> Facts:
    """Speakers found in the recordings' names by data.speaker_pattern."""
    if data.speaker_pattern is None:
        return facts
    return replace(facts, speakers=groups_in_names(facts.files, data.speaker_pattern, "data.speaker_pattern"))


def groups_of(facts: Facts, data: SpeechData) -> np.ndarray | None:
    """The group of each recording, kept in one split (data.group_by): its speaker, folder or part of its name."""
    if data.group_by is None:
        return None
    if data.group_by == "folder":
        return np.array([str(Path(name).parent.name) for name in facts.files])
    if data.group_by == "name":
        return np.array(groups_in_names(facts.files, data.group_pattern or ""))
    if data.group_by in ("speaker", data.speaker_key):
        if facts.speakers is None:
            raise DataError("data.group_by: speaker: the speakers are not known; name the column (data.speaker_key) or set "
                            "data.speaker_pattern, which matches them in the recordings' names")
        return np.array(facts.speakers)
    raise DataError(f"data.group_by: {data.group_by}: recordings are grouped by speaker, folder or name (data.group_pattern)")


def files_loader(files: list[Part], data: SpeechData) -> Any:
    """number -> int16 samples of (path, start, duration), at the model's rate."""

    def load(number: int) -> np.ndarray:
        path, start, duration = files[number]
        try:
            return to_int16(audio.read(path, data.rate, channel=data.channel, start=start, duration=duration, longest=data.max_seconds))
        except DataError as error:
            raise DataError(str(error)) from None

    return load


def file_lengths(files: list[Part], data: SpeechData) -> np.ndarray:
    """Samples at the model's rate from the headers alone, [files] int32; 0 where the header cannot be read, or promises too much."""

    def one(item: Part) -> int:
        path, start, duration = item
        try:
            header = audio.header(path)
        except DataError:
            return 0
        frames = header.frames - round(start * header.rate)
        if duration is not None:
            frames = min(frames, round(duration * header.rate))
        try:
            audio.check_header(header, data.max_seconds, frames)
        except DataError:
            return 0
        return audio.resampled_length(frames, header.rate, data.rate) if frames > 0 else 0

    with ThreadPoolExecutor(8) as threads:
        return np.fromiter(threads.map(one, files), np.int32, len(files))


def files_fingerprint(files: list[Part], root: Path, data: SpeechData) -> str:
    """Identifies the files (`pipelines.data.fingerprint`) and how they are read."""
    names = {path: os.path.relpath(path, root) for path, _, _ in files}
    parts = [f"{names[path]} {start} {duration}" for path, start, duration in files]
    return "\n".join([f"{data.rate} {data.channel}", of_files(list(names), names=list(names.values())), *parts])


def files_stamp(files: list[Part]) -> str:
    """See Source.stamp."""
    return times(list(dict.fromkeys(path for path, _, _ in files)))


def recordings(load: Any, facts: Facts, fingerprint: str, data: SpeechData, stamp: str = "") -> Recordings:
    """Recordings with speakers and groups as the settings say."""
    facts = with_speakers(facts, data)
    return Recordings(load, facts, fingerprint, groups=groups_of(facts, data), stamp=stamp)
