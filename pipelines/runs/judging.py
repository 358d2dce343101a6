"""Judging a trained model: validation and test as the saved model answers, beside a cheap baseline."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pipelines.base.progress import Work
from pipelines.data.source import Source
from pipelines.data.stream import StreamSource
from pipelines.outputs.baselines import put_beside, put_judged_beside
from pipelines.runs.work import Policy
from pipelines.task.contract import Condensed
from pipelines.task.own_metrics import add_own
from pipelines.task.results import Baseline, Judgement
from pipelines.training.evaluation import Evaluator
from pipelines.training.session import Session


def evaluator(session: Session, source: Source, *, alone: bool = False, answer: Callable[[Any], Any] | None = None) -> Evaluator:
    """What answers a source with the session's model as it is now, or with a baseline's `answer`; `alone`: on this host, without the
    others."""
    machine = session.machine.alone() if alone else session.machine
    return Evaluator(session.task, session.model, source, machine=machine, averages=session.averages, trained=True, say=session.say,
                     answer=answer)


def validation(session: Session) -> Evaluator | None:
    """What scores the validation split at the end of epochs, with what trains; None where there is no such split."""
    learner = session.learner
    if learner.validation is None:
        return None
    task, model, source = learner.task, learner.model, learner.validation
    if session.watch[0] in task.output.set_scores.better and not learner.answers:  # features know nothing of test-time views
        task, model, source = session.task, session.model, session.splits.validation or source
    return Evaluator(task, model, source, machine=session.machine, averages=session.averages, say=session.say)


def answered(session: Session, watching: Evaluator | None) -> Condensed | None:
    """The answers for the validation split by the weights as they are now; None where there is no such split.

    Args:
        watching: of `validation`; it answers where its answers are those of the whole model.
    """
    if watching is None or session.splits.validation is None:
        return None
    one = watching if session.learner.answers else evaluator(session, session.splits.validation)
    answers, watching.own = one.judged(), one.own
    return answers


def judge(session: Session, policy: Policy, watching: Evaluator | None, known: Condensed | None,
          warn: Callable[[str], None]) -> dict[str, Judgement]:
    """Split -> judgement. The test split is read here and nowhere else. Of several hosts all answer, and the chief judges.

    Args:
        watching: of the validation split, None where there is none.
        known: its answers by the weights that are judged.
        warn: is told where a model is worse than its baseline.
    """
    evaluate = session.task.experiment.evaluate
    test = evaluator(session, session.splits.test) if policy.test and session.splits.test else None
    evaluators = {"validation": watching, "test": test}
    every = {split: known if one is watching and known is not None else one.judged() for split, one in evaluators.items() if one}
    if not session.machine.group.chief:
        return {}
    with Work(session.say, "fitting the cheap baseline"):
        baseline = _fitted(session, evaluators) if policy.baseline and evaluate.baseline else None
    judgements = {}
    for split, one in evaluators.items():
        if one is None:
            continue
        answers, targets = every[split]
        source = getattr(session.splits, split)
        with Work(session.say, f"judging {split}"):
            judgement = judgements[split] = session.task.output.judge(answers, targets, source)
            add_own(judgement, one.own, session.task)
            if policy.details:
                session.task.output.explain(session.model, judgement, answers, targets, source)
        if baseline is not None:
            with Work(session.say, f"judging the cheap baseline on {split}"):
                cost = next((one.cost for one in session.transforms if one.cost), None)
                if baseline.score is not None:
                    own, other = session.task.output.each(answers, targets), baseline.score(source)
                    put_beside(judgement, baseline, own, other, evaluate.bootstrap, cost=cost)
                else:
                    theirs = session.task.output.judge(*_answered(session, baseline, source, targets), source)
                    put_judged_beside(judgement, baseline.name, theirs, session.task.output.watch, cost=cost)
        if judgement.beaten and policy.guidance and (split == "test" or test is None):
            warn(judgement.beaten)
    return judgements


def _answered(session: Session, baseline: Baseline, source: Source, targets: dict[str, np.ndarray]) -> Condensed:
    """A baseline's answers to a source, condensed as the model's are; `targets` are those of the source, condensed."""
    if baseline.answers is not None:
        return session.task.output.condense(baseline.answers(source), targets)
    return evaluator(session, source, alone=session.machine.group.size > 1, answer=baseline.answer).judged()


def _fitted(session: Session, evaluators: Mapping[str, Evaluator | None]) -> Baseline | None:
    """The task's cheap model, fitted; None where there is none, or train cannot be read by number."""
    train = session.splits.train
    if isinstance(train, StreamSource) or not any(evaluators.values()):
        return None

    def features(source: Source, function: Callable[[Any], Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        known = next((one for one in evaluators.values() if one is not None and one.source is source), None)
        several = session.machine.group.size > 1  # the others have no part in it
        return (evaluator(session, source, alone=several) if several or known is None else known).features(function)

    return session.task.output.baseline(train, features)
