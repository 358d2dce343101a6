"""recsys.bandit: estimators of a policy's value, logs of choices, and policies that are drawn from, served and judged by their own log."""

import json

import numpy as np
import pytest

from pipelines.base.errors import ConfigError, DataError
from pipelines.config.draft import new
from pipelines.config.load import from_dict, from_text
from recsys.check import check_interactions
from recsys.data.rates import mean_rewards
from recsys.data.sources import read_log, synthetic_choices
from recsys.metrics.off_policy import ESTIMATORS, Choices

HEAD = "age,device,action,reward,propensity,time\n"


def log_text(rows: int = 240, seed: int = 0, more: str = "") -> str:
    """Choices of three actions, b the best for phones and c for others."""
    draw = np.random.default_rng(seed)
    lines = []
    for number in range(rows):
        device = ("phone", "desk")[draw.integers(2)]
        chances = np.array([0.5, 0.3, 0.2])
        action = draw.choice(3, p=chances)
        earned = draw.random() < (0.8 if "abc"[action] == {"phone": "b", "desk": "c"}[device] else 0.1)
        lines.append(f"{draw.integers(20, 60)},{device},{'abc'[action]},{int(earned)},{chances[action]},{1_700_000_000 + 60 * number}")
    return HEAD + "\n".join(lines) + "\n" + more


def logged(folder, text: str | None = None, data: dict | None = None, **sections):
    path = folder / "choices.csv"
    path.write_text(log_text() if text is None else text, encoding="utf-8")
    settings = {"source": "table", "path": str(path), "numbers": ["age"], "categories": ["device"], "validation": 0.25, "test": 0.25,
                **(data or {})}
    values = {"task": "recsys.bandit", "data": settings, "model": {"name": "policy", "width": 8}, **sections}
    return from_dict(values, [], check_paths=False)


def splits_of(experiment):
    from pipelines.runs.launch import task_class

    return task_class("recsys.bandit")(experiment).splits()


def made(count: int = 300, actions: int = 5) -> tuple[Choices, float]:
    draw = np.random.default_rng(20261128)
    propensities = draw.dirichlet(np.ones(actions) * 0.5, count)
    chosen = (propensities.cumsum(1) < draw.random(count)[:, None]).sum(1).clip(max=actions - 1)
    rows = np.arange(count)
    rewards = (draw.random(count) < 0.3).astype(float)
    chances, predicted = draw.dirichlet(np.ones(actions), count), draw.uniform(0, 1, (count, actions))
    return Choices(rewards, np.maximum(propensities[rows, chosen], 1e-3), chances[rows, chosen], predicted[rows, chosen],
                   (chances * predicted).sum(1)), 3.0


BY_OBP = {"ips": 0.25740138130463674, "snips": 0.3016324913091577, "direct_method": 0.48428889881881315,
          "doubly_robust": 0.3059061734212698, "switch_dr": 0.3667218351087278}  # of obp 0.4.1, benchmarks/obp_policies.py


def test_estimators_are_those_of_obp():
    choices, threshold = made()
    sums = choices.terms(threshold).sum(0, keepdims=True)
    for name, value in BY_OBP.items():
        assert float(ESTIMATORS[name](sums)[0]) == pytest.approx(value, abs=1e-6), name


def test_estimators_find_the_value_of_a_policy_that_is_known():
    """On 200,000 choices by one policy, the value of another is what it earns; the direct method is as wrong as its model."""
    draw = np.random.default_rng(3)
    count, worth = 200_000, np.array([0.1, 0.4, 0.8])
    theirs, ours = np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.2, 0.7])
    actions = draw.choice(3, size=count, p=theirs)
    rewards = (draw.random(count) < worth[actions]).astype(float)
    wrong = np.array([0.5, 0.5, 0.5])
    choices = Choices(rewards, theirs[actions], ours[actions], wrong[actions], np.full(count, float(ours @ wrong)))
    sums = choices.terms(np.inf).sum(0, keepdims=True)
    for name in ("ips", "snips", "doubly_robust"):
        assert float(ESTIMATORS[name](sums)[0]) == pytest.approx(ours @ worth, abs=0.01), name
    assert float(ESTIMATORS["direct_method"](sums)[0]) == pytest.approx(0.5)
    low, high = choices.bounds(0.0, 1.0)
    assert low < ours @ worth < high and high - low < 0.02 and not choices.few(0.0, 1.0) and not choices.doubts()


def test_few_choices_have_wide_bounds_and_are_doubted():
    """One reward among few choices that count: the bootstrap would say too little."""
    draw = np.random.default_rng(1)
    propensities = np.where(draw.random(1000) < 0.02, 0.01, 0.99)
    little = np.full(1000, 0.005)
    choices = Choices((draw.random(1000) < 0.005).astype(float), propensities, np.full(1000, 0.5), little, little)
    low, high = choices.bounds(0.0, 1.0)
    assert choices.few(0.0, 1.0) and high - low > 0.05
    assert any("The overlap is small" in text for text in choices.doubts())
    shown = Choices(np.ones(50), np.full(50, 0.5), np.zeros(50), np.ones(50), np.ones(50))
    assert "never takes an action" in shown.doubts()[0] and shown.bounds(0.0, 1.0) == (0.0, 1.0) and shown.few(0.0, 1.0)
    wrong = Choices(draw.random(5000), np.full(5000, 0.2), np.full(5000, 0.5), np.zeros(5000), np.zeros(5000))
    assert "Weights average 2.5 [2.5, 2.5] where 1 is expected" in wrong.doubts()[0]
    uneven = Choices(draw.random(5000), draw.choice([0.2, 0.21], 5000), np.full(5000, 0.5), np.zeros(5000), np.zeros(5000))
    assert any("where 1 is expected" in text for text in uneven.doubts())


@pytest.mark.parametrize("good", [True, False])
def test_switch_gains_where_the_model_is_good_and_costs_little_where_it_is_not(good):
    """Over 300 logs with a rare action that the policy prefers: errors of SWITCH-DR beside those of doubly robust and direct method."""
    draw = np.random.default_rng(2)
    worth, theirs, ours = np.array([0.05, 0.06]), np.array([0.998, 0.002]), np.array([0.4, 0.6])
    predicted = worth + (0.002 if good else 0.3)
    errors = {"doubly_robust": [], "switch_dr": [], "direct_method": []}
    switched = 0
    for _ in range(300):
        actions = (draw.random(2000) < theirs[1]).astype(int)
        rewards = (draw.random(2000) < worth[actions]).astype(float)
        choices = Choices(rewards, theirs[actions], ours[actions], predicted[actions], np.full(2000, ours @ predicted))
        switched += choices.switch_threshold() < choices.weights.max()
        sums = choices.terms().sum(0, keepdims=True)
        for name, found in errors.items():
            found.append((float(ESTIMATORS[name](sums)[0]) - ours @ worth) ** 2)
    error = {name: float(np.sqrt(np.mean(found))) for name, found in errors.items()}
    if good:
        assert switched > 30 and error["switch_dr"] < 0.9 * error["doubly_robust"]
    else:
        assert error["switch_dr"] < 1.1 * error["doubly_robust"] < error["direct_method"]


def test_rates_of_few_choices_are_drawn_to_the_mean():
    draw = np.random.default_rng(0)
    actions = np.concatenate([np.repeat([0, 1], 5000), np.repeat(2, 4)])
    rewards = np.concatenate([draw.random(5000) < 0.1, draw.random(5000) < 0.3, np.ones(4)]).astype(float)
    rates = mean_rewards(actions, rewards, np.full(len(actions), 1 / 3), 3)
    assert rates[0] == pytest.approx(0.1, abs=0.02) and rates[1] == pytest.approx(0.3, abs=0.02)
    assert 0.2 < rates[2] < 0.95
    assert mean_rewards(np.array([0, 1]), np.array([0.0, 0.0]), np.ones(2), 2).tolist() == [0.0, 0.0]


def test_a_choice_counts_by_its_propensity_in_the_rates():
    """Where the log takes an action in the contexts in which it earns, its mean there is not its mean."""
    draw = np.random.default_rng(0)
    good = draw.random(40_000) < 0.5
    propensity = np.where(good, 0.9, 0.1)
    taken = draw.random(40_000) < propensity
    actions = np.where(taken, 0, 1)
    rewards = np.where(taken, good, 0.2).astype(float)
    assert mean_rewards(actions, rewards, np.where(taken, propensity, 1 - propensity), 2)[0] == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("value", ["0", "1.2", "-0.1", "much", ""])
def test_a_propensity_that_is_none_is_said(tmp_path, value):
    text = log_text() + f"30,desk,a,1,{value},1700009999\n"
    with pytest.raises(DataError) as error:
        read_log(logged(tmp_path, text).data)
    assert "choices.csv:242" in str(error.value) and "propensity" in str(error.value) and "on_bad_example" in str(error.value)
    log = read_log(logged(tmp_path, text, {"on_bad_example": "skip"}).data)
    assert len(log) == 240 and log.left_out == 1 and log.propensities.min() == 0.2


def test_what_a_log_lacks_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"data\.numbers"):
        logged(tmp_path, data={"numbers": [], "categories": []})
    with pytest.raises(ConfigError, match="position_key"):
        logged(tmp_path, data={"position_key": "place"})
    with pytest.raises(DataError, match="all rewards of train are 0 or 1"):
        splits_of(logged(tmp_path, log_text(more="30,desk,a,0.5,0.5,1900000000\n"), {"protocol": "time", "time_key": "time"}))
    with pytest.raises(DataError, match=r"called 'action'"):
        splits_of(logged(tmp_path, data={"item_key": "device", "categories": ["action"]}))
    one = HEAD + "".join(f"30,desk,a,{n % 2},0.5,{n}\n" for n in range(40))
    with pytest.raises(DataError, match="action"):
        splits_of(logged(tmp_path, one))


def test_without_propensities_all_actions_were_equally_probable(tmp_path):
    splits = splits_of(logged(tmp_path, data={"propensity_key": None}))
    assert set(splits.train.arrays["propensity"].tolist()) == {np.float32(1 / 3)}


def test_a_column_of_the_context_that_never_differs_for_an_action_stays_one_of_the_context(tmp_path):
    text = HEAD + "".join(f"30,{'abc'[n % 3]}-phone,{'abc'[n % 3]},{n % 2},0.3,{n}\n" for n in range(60))
    assert splits_of(logged(tmp_path, text)).facts["features"]["device"]["of"] == "event"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(a run on the made choices, its folder)."""
    from pipelines.runs.folder import RunFolder
    from pipelines.runs.launch import task_class
    from pipelines.runs.run import Call, train

    text = """
task: recsys.bandit
data: {source: synthetic, time_key: time, numbers: [x0, x1, x2], categories: [device], protocol: time, validation: 0.2, test: 0.2}
model: {name: policy}
train: {epochs: 8, batch_size: 256, precision: float32, devices: cpu, learning_rate: {peak: 0.01, schedule: cosine}}
evaluate: {bootstrap: 200}
"""
    experiment = from_text(text, file="choices.yaml").experiment
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "choices")
    report = train(experiment, folder, Call("recsys/choices", task_class("recsys.bandit"), quiet=True))
    return folder, report


@pytest.fixture(scope="module")
def loaded(run):
    from pipelines.serving.load import load_run

    return load_run(run[0], where="cpu")


@pytest.fixture(scope="module")
def answered(loaded):
    """Inputs of requests -> answers."""
    from pipelines.serving.predict import Predictor

    predictor = Predictor(loaded)
    return lambda inputs: [one.values for one in predictor.predict(inputs)]


def test_the_policy_earns_more_than_the_log_by_more_than_chance(run):
    _, report = run
    rows = {row["of"]: row for row in report["tables"]["test/model_and_baselines"]}
    assert rows["model"]["snips_low"] > rows["logging policy"]["snips_high"] > rows["even choices"]["snips"]
    assert any("earns more than the logging policy" in note for note in report["notes"])
    assert report["compared"].startswith("Better than the cheap baseline")


def context(number: int, **more) -> str:
    draw = np.random.default_rng(number)
    return json.dumps({"x0": draw.normal(), "x1": draw.normal(), "x2": draw.normal(), "device": "phone", **more})


def test_choices_are_drawn_as_probable_as_they_say(answered):
    answers = answered([json.dumps({"x0": 0.1, "device": "desk", "request": f"r{number}"}) for number in range(3000)])
    said = dict(zip(answers[0]["actions"], answers[0]["probabilities"]))
    assert sum(said.values()) == pytest.approx(1.0, abs=1e-5)
    for action, chance in said.items():
        times = sum(answer["action"] == action for answer in answers)
        assert abs(times - 3000 * chance) < 5 * np.sqrt(3000 * chance * (1 - chance)) + 1, action
    assert all(answer["probability"] == pytest.approx(said[answer["action"]]) for answer in answers)
    again = answered([json.dumps({"x0": 0.1, "device": "desk", "request": f"r{number}"}) for number in range(50)])
    assert [one["action"] for one in again] == [one["action"] for one in answers[:50]]


def test_what_is_excluded_is_never_chosen_and_the_rest_is_drawn_apart(answered, loaded):
    best = answered([context(1, request="r")])[0]["actions"][0]
    others = answered([context(1, request=f"r{number}", exclude=[best]) for number in range(200)])
    assert all(best not in (answer["action"], *answer["actions"]) and answer["count"] == 7 for answer in others)
    assert sum(others[0]["probabilities"][:7]) == pytest.approx(1.0, abs=1e-5)
    everything = loaded.task.facts["item_ids"]
    none = answered([context(1, request="r", exclude=everything)])[0]
    many = answered([context(1, request="r", exclude=["unknown"] * 150_000 + [best])])[0]
    assert many["count"] == 7 and best not in many["actions"]
    assert none["count"] == 0 and none["action"] == "" and none["probability"] == 0.0


def test_a_client_without_a_request_gets_a_choice_of_its_own(loaded):
    requests = loaded.task.input.requests
    first, second = (requests.take({"x0": 1.0}) for _ in range(2))
    assert first["request"] and first["request"] != second["request"]
    assert [requests.take({"x0": 1.0, "request": number})["request"] for number in (7, 0)] == ["7", "0"]
    with pytest.raises(DataError, match="no number"):
        requests.take({"x0": "much"})
    with pytest.raises(DataError, match="x3"):
        requests.take({"x3": 1.0})


def test_the_policys_own_log_can_be_learned_from(answered, tmp_path):
    """What it says of its choices is a log whose weights are 1: judged on it, the policy's value is the mean of the rewards."""
    answers = answered([context(number, request=str(number)) for number in range(300)])
    assert all(0 < answer["probability"] <= 1 for answer in answers)
    lines = [f"{json.loads(context(number))['x0']},phone,{answer['action']},{number % 2},{answer['probability']},{number}"
             for number, answer in enumerate(answers)]
    log = read_log(logged(tmp_path, HEAD + "\n".join(lines)).data)
    assert len(log) == 300
    choices = Choices(log.ratings, log.propensities, np.array([answer["probability"] for answer in answers]), np.zeros(300), np.zeros(300))
    assert choices.value() == pytest.approx(0.5) and choices.effective_sample_size() == pytest.approx(300)


def test_sharpness_leaves_the_log_only_where_validation_is_sure(loaded):
    """Of nine sharpnesses the one whose value is surest; where what counts is little, the log's own."""
    output = loaded.task.output
    draw = np.random.default_rng(0)

    def answers(weights: list[float], values: list[float], count: int):
        chances = np.tile(np.array(weights) * 0.1, (count, 1))
        rewards = (draw.random(count) < np.mean(values)).astype(np.float32)
        return ({"chances": chances, "expected": np.zeros_like(chances), "predicted": np.zeros(count)},
                {"reward": rewards, "propensity": np.full(count, 0.1)})

    # all alike but that the sharp ones rest on a tenth of the choices
    given, targets = answers([1.0] * 9, [0.3], 400)
    given["chances"][40:, 4:] = 0.0
    targets["reward"][:40] = targets["reward"].mean() > 0.3
    assert output.choose(given, targets)["sharpness"] == 0.0
    targets["reward"][:40] = 1.0
    assert output.choose(given, targets)["sharpness"] == 2.0


def test_places_of_a_list_are_judged_apart_and_users_drawn_whole(tmp_path):
    from pipelines.runs.folder import RunFolder
    from pipelines.runs.launch import task_class
    from pipelines.runs.run import Call, train

    rows = log_text().splitlines()
    text = "\n".join([rows[0] + ",place,user", *(f"{row},{number % 3 + 1},u{number // 3}" for number, row in enumerate(rows[1:]))])
    settings = logged(tmp_path, text, {"categories": ["device", "place"], "position_key": "place", "user_key": "user"},
                      train={"epochs": 1}, monitor={"tensorboard": False}, evaluate={"bootstrap": 100}, loss={"name": "ips"})
    report = train(settings, RunFolder(tmp_path / "run"), Call("places", task_class("recsys.bandit"), quiet=True))
    table = report["tables"]["test/by_place"]
    assert [row["place"] for row in table] == ["1", "2", "3"] and sum(row["choices"] for row in table) == 60
    assert report["metrics"]["test/ips"]["unit"] == "user" and "user_ids" not in splits_of(settings).facts


def test_the_choices_of_one_list_are_drawn_apart(tmp_path):
    """One request, at two places or with something excluded: draws of their own, each even; the same again for the same."""
    import tensorflow as tf

    from pipelines.runs.launch import task_class

    rows = log_text().splitlines()
    text = "\n".join([rows[0] + ",place", *(f"{row},{number % 2 + 1}" for number, row in enumerate(rows[1:]))])
    task = task_class("recsys.bandit")(logged(tmp_path, text, {"categories": ["place"], "position_key": "place"}))
    task.facts.update(task.splits().facts)

    def drawn(place: str, exclude: str = "") -> np.ndarray:
        count = 1000
        return task.input.receive({"age": tf.zeros([count]), "place": tf.fill([count], place), "exclude": tf.fill([count, 1], exclude),
                                   "request": tf.strings.as_string(tf.range(count))})["draw"].numpy()

    first, second, third = drawn("1"), drawn("2"), drawn("1", "a")
    assert np.array_equal(first, drawn("1")) and first.min() > 0 and first.max() < 1
    for one, other in ((first, second), (first, third)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.1
        assert abs(one.mean() - 0.5) < 0.05 and abs(np.mean(one < 0.1) - 0.1) < 0.04


def test_features_of_actions_and_rewards_that_are_numbers(tmp_path):
    """A table of actions, and rewards in euros: the model's rewards are in euros, too."""
    from pipelines.runs.folder import RunFolder
    from pipelines.runs.launch import task_class
    from pipelines.runs.run import Call, train
    from pipelines.serving.load import load_run
    from pipelines.serving.predict import Predictor

    lines = log_text(400).splitlines()
    text = "\n".join([lines[0], *(",".join([*row.split(",")[:3], str(12.0 * float(row.split(",")[3]) + 1), *row.split(",")[4:]])
                                  for row in lines[1:])])
    (tmp_path / "actions.csv").write_text("action,price,kind\na,1.5,x\nb,2.5,y\nc,9,y\n", encoding="utf-8")
    columns = {"items": str(tmp_path / "actions.csv"), "numbers": ["age", "price"], "categories": ["device", "kind"]}
    training = {"epochs": 20, "batch_size": 32, "learning_rate": {"peak": 0.02}}
    settings = logged(tmp_path, text, columns, train=training, monitor={"tensorboard": False}, evaluate={"bootstrap": 100},
                      loss={"name": "direct"})
    train(settings, RunFolder(tmp_path / "run"), Call("priced", task_class("recsys.bandit"), quiet=True))
    loaded = load_run(RunFolder(tmp_path / "run"), where="cpu")
    assert not loaded.task.facts["binary"] and {one["name"]: one["of"] for one in loaded.task.facts["features"].values()} == {
        "age": "event", "price": "item", "device": "event", "kind": "item"}
    answers = Predictor(loaded).predict(['{"age": 30, "device": "phone"}', '{"age": 30, "device": "desk"}'])
    expected = [dict(zip(one.values["actions"], one.values["rewards"])) for one in answers]
    assert expected[0]["b"] > expected[0]["c"] + 3 and expected[1]["c"] > expected[1]["b"] + 3
    assert all(1.0 <= value <= 13.0 for answer in expected for value in answer.values())


def test_new_knows_a_log_of_choices_and_check_looks_at_it(tmp_path):
    path = tmp_path / "choices.csv"
    path.write_text(log_text(), encoding="utf-8")
    experiment = from_text(new("recsys", path), file="a.yaml").experiment
    data = experiment.data
    assert experiment.task == "recsys.bandit"
    assert (data.item_key, data.rating_key, data.propensity_key) == ("action", "reward", "propensity")
    assert data.numbers == ["age"] and data.categories == ["device"] and data.protocol == "time" and data.time_key == "time"
    ranked = from_text(new("recsys", path, task="ranking", columns={"item": "action", "label": "reward"}), file="a.yaml").experiment
    assert ranked.task == "recsys.ranking" and ranked.data.numbers == ["age"]
    texts = {finding.text: finding.level for finding in check_interactions(experiment).findings}
    assert any("earned something" in text and level == "warning" for text, level in texts.items())
    assert not any("1 / propensity" in text for text in texts)
    wrong = "\n".join(row if not number else ",".join([*row.split(",")[:4], "0.9", row.split(",")[5]])
                      for number, row in enumerate(log_text().splitlines()))
    path.write_text(wrong + "\n" + wrong.splitlines()[1], encoding="utf-8")
    texts = {finding.text: finding.level for finding in check_interactions(experiment).findings}
    assert any("1 / propensity averages 1.11 where 3" in text and level == "warning" for text, level in texts.items())
    assert any("1 of 241 choices" in text for text in texts)


def test_a_log_without_contexts_is_said(tmp_path):
    path = tmp_path / "choices.csv"
    path.write_text("action,reward,propensity\n" + "a,1,0.5\nb,0,0.5\n" * 4, encoding="utf-8")
    with pytest.raises(DataError, match="no column says in which context"):
        new("recsys", path)


@pytest.mark.parametrize("named, task", [("pscore", "bandit"), ("action_prob", "bandit"), ("problem_share", "ranking")])
def test_a_propensity_is_known_by_whole_words(tmp_path, named, task):
    path = tmp_path / "choices.csv"
    path.write_text(log_text().replace("propensity", named).replace("action,reward", "item,click"), encoding="utf-8")
    assert from_text(new("recsys", path), file="a.yaml").experiment.task == f"recsys.{task}"


def test_synthetic_choices_have_the_propensities_that_they_were_drawn_by():
    log = synthetic_choices(20_000)
    assert float(np.mean(1 / log.propensities)) == pytest.approx(8, rel=0.1)
