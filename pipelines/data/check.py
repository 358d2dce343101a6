"""The findings of `quartet check` about data: unreadable examples, duplicates, conflicting labels, missing classes, imbalance, sizes.

A domain reads every example once; everything else is counted here.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipelines.base.files import abridged
from pipelines.base.terminal import printable
from pipelines.config.messages import listed
from pipelines.data.kinds import kind_of, too_many, unanswered
from pipelines.data.names import groups_in_names, suspected_groups
from pipelines.data.source import Source, class_counts, label_of

IMBALANCE = 10  # largest class : smallest class of train that is worth a warning
FEW = 10  # examples of a class in train below which it is worth a warning
LEVELS = ("error", "warning", "note")  # of findings, worst first
SHOWN = 3  # details of a finding in the terminal
KEPT = 1000  # details of a finding in the JSON
MISSING = ("na", "n/a", "n.a.", "nan", "null", "none", "nil", "?", "-", "--", "unlabeled", "unlabelled", "tbd", "undefined", "missing")
CLASSES_SHOWN = 40  # most classes for which the terminal has a table


@dataclass
class Read:
    """What a domain read of one split, by example.

    Attributes:
        bad: (number, reason) of each example that cannot be read.
        fingerprints: [examples] uint64, equal for identical content; ignored for bad examples.
        measures: name with unit ("height, px") -> [examples] numbers; ignored for bad examples.
        kinds: [examples] text whose most common values are listed ("24 x 36 px"), or None.
        sets: the classes of each example where it may have several; None where the source has them.
    """

    bad: list[tuple[int, str]]
    fingerprints: np.ndarray
    measures: dict[str, np.ndarray] = field(default_factory=dict)
    kinds: np.ndarray | None = None
    sets: Sequence[Sequence[int]] | None = None

    def titles(self, source: Source, number: int, classes: Sequence[str]) -> str:
        """The label of an example, or its labels."""
        if self.sets is not None:
            return ", ".join(classes[label] for label in self.sets[number]) or "without label"
        return label_of(source, number, classes) or ("without label" if source.sets is not None else "")

    def counts(self, source: Source, classes: int) -> np.ndarray | None:
        """Examples of each class, [classes]; None where there are no labels."""
        if self.sets is not None:
            return np.bincount(np.array([label for labels in self.sets for label in labels], np.int64), minlength=classes)
        return class_counts(source, classes)


@dataclass(frozen=True)
class Finding:
    """A finding: an error stops training, a warning needs attention, a note is for information."""

    level: Literal["error", "warning", "note"]
    text: str
    details: tuple[str, ...] = ()


@dataclass
class Check:
    """The result for one data set.

    Attributes:
        place: the data's name.
        splits: name -> examples, fingerprint, unreadable, identical, classes {name: count}, measures {name: {min, median, max}}, common
            [[kind, count]].
        findings: worst first.
        descriptions: of the data, by the name of the file they go to, as the hooks of extensions give them; none where training would stop.
        pictures: of examples, PNG, by the name of the file they go to.
    """

    place: str
    splits: dict[str, dict[str, Any]]
    findings: list[Finding]
    descriptions: dict[str, Any] = field(default_factory=dict)
    pictures: dict[str, bytes] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether training would stop at a finding."""
        return any(finding.level == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Values for `pipelines.base.files.write_json`; of each finding at most 1,000 details, of more classes than that the first."""
        findings = [{"level": finding.level, "text": finding.text, "details": list(finding.details[:KEPT]),
                     "more": max(0, len(finding.details) - KEPT)} for finding in self.findings]
        return {"data": self.place, "failed": self.failed, "splits": abridged(self.splits, KEPT), "findings": findings}

    def render(self, console: Console) -> None:
        """Tables of splits and classes, then the findings."""
        table = Table(box=None, pad_edge=False, title=Text(f"{printable(self.place)}: every example read once"), title_justify="left")
        measures = list(dict.fromkeys(name for facts in self.splits.values() for name in facts["measures"]))
        for heading in ("split", "examples", "unreadable", "identical", "classes", *(f"{name}: min, median, max" for name in measures)):
            table.add_column(heading, justify="left" if heading == "split" else "right")
        for name, facts in self.splits.items():
            sizes = [", ".join(f"{facts['measures'][measure][key]:g}" for key in ("min", "median", "max"))
                     if measure in facts["measures"] else "" for measure in measures]
            there = sum(count > 0 for count in facts["classes"].values())
            table.add_row(name, f"{facts['examples']:,}", f"{facts['unreadable']:,}", f"{facts['identical']:,}", f"{there:,}", *sizes)
        console.print(table)
        self._render_classes(console)
        for name, facts in self.splits.items():
            if facts["common"]:
                console.print(Text(f"{name}: " + ", ".join(f"{count:,} x {printable(kind)}" for kind, count in facts["common"])))
        console.print()
        if not self.findings:
            console.print(Text("Nothing to fix.", "green"))
        for finding in self.findings:
            style = {"error": "bold red", "warning": "yellow", "note": ""}[finding.level]
            console.print(Text.assemble((f"{finding.level}: ", style), printable(finding.text)))
            for detail in finding.details[:SHOWN]:
                console.print(Text(f"  {printable(detail)}"))
            if len(finding.details) > SHOWN:
                console.print(Text(f"  and {len(finding.details) - SHOWN:,} more"))

    def _render_classes(self, console: Console) -> None:
        classes = list(dict.fromkeys(name for facts in self.splits.values() for name in facts["classes"]))
        if not 0 < len(classes) <= CLASSES_SHOWN:
            return
        table = Table(box=None, pad_edge=False)
        table.add_column("class")
        for name in self.splits:
            table.add_column(name, justify="right")
        for title in classes:
            table.add_row(Text(printable(title)), *(f"{facts['classes'].get(title, 0):,}" for facts in self.splits.values()))
        console.print()
        console.print(table)
        console.print()


def check(place: str, parts: dict[str, Source | None], reads: dict[str, Read], classes: Sequence[str], *, identical: str, skip: bool,
          lost: Sequence[str] = (), notes: Sequence[str] = ()) -> Check:
    """Counts and findings.

    Args:
        place: the data's name.
        parts: train, validation and test.
        reads: what was read of each part, in its order.
        classes: class names by label.
        identical: the meaning of identical content ("the same pixels").
        skip: unreadable examples are skipped in training (data.on_bad_example), so they are not errors.
        lost: examples that are in no part, not there or skipped, each with its reason.
        notes: further remarks.
    """
    there = {name: source for name, source in parts.items() if source is not None}
    splits = {name: _facts(source, reads[name], classes) for name, source in there.items()}
    findings = [*_unreadable(there, reads, skip, lost), *_classes(there, reads, classes),
                *_identical(there, reads, classes, identical, splits), *(Finding("note", note) for note in notes)]
    findings.sort(key=lambda finding: LEVELS.index(finding.level))
    return Check(place, splits, findings)


def _facts(source: Source, read: Read, classes: Sequence[str]) -> dict[str, Any]:
    good = _good(source, read)
    measures = {name: {"min": float(values[good].min()), "median": float(np.median(values[good])), "max": float(values[good].max())}
                for name, values in read.measures.items() if good.any()}
    counts = read.counts(source, len(classes))
    common = Counter(read.kinds[good].tolist()).most_common(5) if read.kinds is not None else []
    return {"examples": len(source), "fingerprint": source.fingerprint(), "unreadable": len(read.bad), "identical": 0,
            "classes": {} if counts is None else dict(zip(classes, counts.tolist())), "measures": measures,
            "common": [[kind, count] for kind, count in common]}


def _good(source: Source, read: Read) -> np.ndarray:
    good = np.ones(len(source), bool)
    good[[number for number, _ in read.bad]] = False
    return good


def _unreadable(parts: dict[str, Source], reads: dict[str, Read], skip: bool, lost: Sequence[str]) -> list[Finding]:
    bad = (f"{source.name(number)}: {reason} ({name})" for name, source in parts.items() for number, reason in reads[name].bad)
    details = [*lost, *bad]
    if not details:
        return []
    count = f"{len(details):,} example{'s' if len(details) > 1 else ''} cannot be read"
    if skip:
        return [Finding("warning", f"{count} and will be skipped (data.on_bad_example: skip)", tuple(details))]
    return [Finding("error", f"{count}: repair or remove them, or set data.on_bad_example: skip", tuple(details))]


def _classes(parts: dict[str, Source], reads: dict[str, Read], classes: Sequence[str]) -> list[Finding]:
    every = {name: reads[name].counts(source, len(classes)) for name, source in parts.items()}
    counts = {name: sizes for name, sizes in every.items() if sizes is not None}
    if "train" not in counts or not classes:  # labels without names, such as voices, of which each split has its own
        return []
    train = counts["train"]
    findings: list[Finding] = []

    def titles(which: np.ndarray) -> list[str]:
        return [classes[int(label)] for label in np.flatnonzero(which)]

    for name, own in counts.items():
        if name == "train":
            continue
        unseen = titles((own > 0) & (train == 0))
        if unseen:
            findings.append(Finding("error", f"{name} has {_many(len(unseen))} of which train has no example", tuple(unseen)))
        missing = titles((own == 0) & (train > 0))
        if missing:
            findings.append(Finding("warning", f"{name} has no example of {_many(len(missing))}, so it cannot judge them", tuple(missing)))
    seen = train[train > 0]
    if len(seen) and seen.max() >= IMBALANCE * seen.min():
        least, most = titles(train == seen.min())[0], classes[int(np.argmax(train))]
        findings.append(Finding("warning", (
            f"train is imbalanced: class {most} has {seen.max():,} examples, class {least} has {seen.min():,}; accuracy hides the small "
            "classes, so look at macro F1 (and class weights)")))
    few = [f"{classes[int(label)]}: {train[label]}" for label in np.flatnonzero((train > 0) & (train < FEW))]
    if few:
        findings.append(Finding("warning", f"{_many(len(few))} of train with fewer than {FEW} examples", tuple(few)))
    if all(read.sets is None for read in reads.values()) and all(source.sets is None for source in parts.values()):
        findings += kind_findings({title: count for title, count in zip(classes, train.tolist()) if count})
    return [*findings, *title_findings(classes, train)]


def kind_findings(counts: Mapping[str, int]) -> list[Finding]:
    """Whether the classes of train seem to be numbers, several labels, files or names: a question that is not answered yet."""
    text = unanswered(kind_of(counts), "the classes", "an example")
    return [Finding("error" if too_many(counts) else "warning", text)] if text else []


def title_findings(classes: Sequence[str], counts: np.ndarray) -> list[Finding]:
    """Classes that are spelled in two ways, or seem to stand for a missing label."""
    findings = []
    spelled: dict[str, list[str]] = {}
    for title, count in zip(classes, counts.tolist()):
        spelled.setdefault(re.sub(r"[\W_]+", "", title.casefold()) or title, []).append(f"{title} ({count:,})")
    twice = [" and ".join(titles) for titles in spelled.values() if len(titles) > 1]
    if twice:
        findings.append(Finding("warning", f"{_many(len(twice))} seem{'s' if len(twice) == 1 else ''} to be spelled in several ways, and "
                                "each spelling counts as a class: write them alike", tuple(twice)))
    none = [f"{title} ({count:,})" for title, count in zip(classes, counts.tolist()) if title.strip().casefold() in MISSING]
    if none:
        findings.append(Finding("warning", f"class {listed(none, 'and')} may mean that there is no label; it is learned like any other: "
                                "remove these examples if it does"))
    return findings


def shared_groups(names: Mapping[str, Sequence[str]], labels: Mapping[str, Sequence[str] | None], remedy: Callable[[str], str],
                  own: Collection[str] = ()) -> list[Finding]:
    """Whether the files' names seem to hold people, scenes or devices that are in train and in the parts that are judged.

    Args:
        names: part -> paths of its examples relative to the data's folder.
        labels: part -> their classes; None where there are none.
        remedy: pattern -> the settings that keep them apart.
        own: parts that are the data's own, of a division that somebody made for a reason and that groups do not change.
    """
    every = [name for own in names.values() for name in own]
    known = [label for own in labels.values() for label in own or ()]
    pattern = suspected_groups(every, known if len(known) == len(every) else None)
    if pattern is None:
        return []
    groups = {part: set(groups_in_names(own, pattern.pattern)) for part, own in names.items()}
    findings = []
    for part, there in groups.items():
        both = there & groups.get("train", set())
        if part != "train" and both:
            which = f"all {len(there):,}" if both == there else f"{len(both):,} of {len(there):,}"
            findings.append(Finding("note" if part in own else "warning", (
                f"{part}: the files' names hold what seems to be a person, a scene or a device (such as {', '.join(pattern.values[:3])}), "
                f"and {which} of them {'are' if len(there) > 1 else 'is'} in train, too: expect lower scores for new ones. "
                + ("The data are divided so" if part in own else f"{remedy(pattern.pattern)} keeps them apart"))))
    return findings


def _many(count: int) -> str:
    return f"{count:,} class{'es' if count > 1 else ''}"


def _identical(parts: dict[str, Source], reads: dict[str, Read], classes: Sequence[str], meaning: str,
               splits: dict[str, dict[str, Any]]) -> list[Finding]:
    """Groups of identical examples, across splits, with different labels, and within splits; counts go into `splits`."""
    names = list(parts)
    where = np.concatenate([np.full(len(source), number) for number, source in enumerate(parts.values())])
    numbers = np.concatenate([np.arange(len(source)) for source in parts.values()])
    good = np.concatenate([_good(source, reads[name]) for name, source in parts.items()])
    prints = np.concatenate([reads[name].fingerprints for name in names])
    where, numbers, prints = where[good], numbers[good], prints[good]
    order = np.lexsort((numbers, where, prints))
    edges = np.flatnonzero(np.diff(prints[order])) + 1
    groups = [group for group in np.split(order, edges) if len(group) > 1]

    across: list[str] = []
    conflicts: list[str] = []
    within: dict[str, list[str]] = {name: [] for name in names}
    copies = 0
    for group in groups:
        members = [(names[where[member]], int(numbers[member])) for member in group]
        called = [f"{parts[name].name(number)} ({name})" for name, number in members]
        labels = [reads[name].titles(parts[name], number, classes) for name, number in members]
        for name in names:
            own = sum(member == name for member, _ in members)
            if own > 1:
                splits[name]["identical"] += own - 1
                within[name].append(" = ".join(text for text, (member, _) in zip(called, members) if member == name))
        if len({name for name, _ in members}) > 1:
            across.append(" = ".join(called))
            copies += sum(name != "train" for name, _ in members)
        if len(set(labels)) > 1:
            conflicts.append(" = ".join(f"{text} is {label}" for text, label in zip(called, labels)))
    findings = []
    if across:
        findings.append(Finding("warning", (
            f"{meaning} in more than one split, {len(across):,} times, {copies:,} examples outside of train: what is judged on them was "
            f"seen before, so figures for {listed(names[1:], 'and')} are too good"), tuple(across)))
    if conflicts:
        findings.append(Finding("warning", f"{meaning} with different labels, {len(conflicts):,} times", tuple(conflicts)))
    for name, details in within.items():
        if details:
            text = f"{meaning} within {name}: {splits[name]['identical']:,} examples repeat another one"
            findings.append(Finding("note", text, tuple(details)))
    return findings
