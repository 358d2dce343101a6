"""Items and users that train does not have: known by their columns, recommended, and judged apart."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics.pairwise import cosine_similarity

from pipelines.base.errors import DataError
from pipelines.config.load import from_dict
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.run import Call, train
from recsys.closed_form import content
from recsys.closed_form.histories import ages
from recsys.data.protocol import TEST
from recsys.data.splits import load
from recsys.metrics import per_user
from recsys.models.lists import among_last, products, recommend
from recsys.models.sampling import Sampler
from recsys.models.store import EntityVectors, FeatureStore
from recsys.settings import SEQUENTIAL_MODELS, Hstu
from tests.recsys.small_tables import experiment, shop, table

NEW = """user,item,time,split
7,a,1,train
7,b,2,train
9,b,1,train
9,c,3,test
12,a,4,test
12,d,5,test
"""
ITEMS = "item,genre,title\nz,sad,Zed\na,fun,Aha\nb,sad,\nc,fun,Cee\n"
BOTH = ("item", "user")


def loaded(folder, text: str = NEW, described=BOTH, **data):
    items, users = table(folder, ITEMS, "items.csv"), table(folder, "user,age\n7,20\n9,40\n12,30\n50,60\n", "users.csv")
    settings = {"split_key": "split", "rating_key": None, "test": "test", "validation": 0.0, "items": str(items), "users": str(users),
                "categories": ["genre"], "numbers": ["age"], "title_key": "title", **data}
    return load(experiment(table(folder, text), "recsys.retrieval", data=settings).data, described=described)


def test_what_only_the_tables_have_comes_behind_what_train_has(tmp_path):
    made, notes = loaded(tmp_path)
    assert made.item_ids.values.tolist() == ["a", "b", "z", "c"] and made.new_items == 2
    assert made.user_ids.values.tolist() == [7, 9, 12, 50] and made.new_users == 2  # whole numbers, as the log has them
    test = made.parts == TEST
    assert made.items[test].tolist() == [4, 1, 0] and made.users[test].tolist() == [2, 3, 3]  # of d nothing is known
    genre = {one["name"]: one for one in made.features}["genre"]
    assert [["", *genre["values"]][code] for code in made.item_features["genre"]] == ["", "fun", "sad", "sad", "fun"]
    assert made.user_features["age"].tolist() == pytest.approx([0, -1, 1, 0, 3])  # mean and deviation are of train's users
    assert made.titles == ["Aha", "b", "Zed", "Cee"] and made.counts.tolist() == [0, 1, 2, 0, 0]
    assert made.facts()["new_items"] == 2
    assert any(note.startswith("2 items of data.items are not in train") for note in notes)
    again, _ = load(loaded_data(tmp_path), {**made.facts(), "features": {one["name"]: one for one in made.features}}, described=BOTH)
    assert again.new_items == 2 and again.items.tolist() == made.items.tolist()
    np.testing.assert_array_equal(again.item_features["genre"], made.item_features["genre"])


def loaded_data(folder):
    return experiment(folder / "events.csv", "recsys.retrieval", data={
        "split_key": "split", "rating_key": None, "test": "test", "validation": 0.0, "items": str(folder / "items.csv"),
        "users": str(folder / "users.csv"), "categories": ["genre"], "numbers": ["age"], "title_key": "title"}).data


def test_what_the_model_does_not_know_by_columns_is_left_out(tmp_path):
    made, _ = loaded(tmp_path, described=())
    assert made.item_ids.values.tolist() == ["a", "b"] and not made.new_items and "new_items" not in made.facts()
    made, _ = loaded(tmp_path, categories=[])  # nothing is said of items
    assert not made.new_items and made.new_users == 2


def test_a_table_of_other_ids_is_said(tmp_path):
    other = table(tmp_path, "item,genre\nA-1,fun\nB-2,sad\n", "others.csv")
    with pytest.raises(DataError, match=r"others.csv: no id in column item is one of train, such as 'a'; the table has 'A-1' and others"):
        loaded(tmp_path, items=str(other), title_key=None)


def test_a_column_of_users_is_not_named_as_what_requests_say(tmp_path):
    users = table(tmp_path, "user,k\n7,1\n9,2\n12,3\n", "users.csv")
    known = experiment(table(tmp_path), "recsys.retrieval", data={"users": str(users), "numbers": ["k"]})
    with pytest.raises(DataError, match=r"users.csv: requests say 'k' of something else; rename the column .data.users."):
        task_class("recsys.retrieval")(known).splits()


def test_vectors_are_lists_of_numbers_of_one_length(tmp_path):
    def made(rows, name="items.parquet"):
        whole = pa.table({"item": ["a", "b", "z"], "vector": pa.array(rows)})
        pq.write_table(whole, tmp_path / name)
        return loaded(tmp_path, items=str(tmp_path / name), categories=[], vectors=["vector"], title_key=None)[0]

    found = made([[3.0, 4.0], [0.0, 5.0], None])
    np.testing.assert_allclose(found.item_features["vector"], [[0, 0], [0.6, 0.8], [0, 1], [0, 0]], atol=1e-6)  # of train's mean length
    texts = made(["[3, 4]", " 0 5", ""]).item_features["vector"]
    np.testing.assert_allclose(texts, found.item_features["vector"], atol=1e-6)
    with pytest.raises(DataError, match=r"3 numbers in row 3 of column vector, and 2 in others"):
        made([[3.0, 4.0], [0.0, 5.0], [1.0, 2.0, 3.0]])
    with pytest.raises(DataError, match="column vector holds something else than lists of numbers"):
        made(["[3, four]", "0 5", ""])
    with pytest.raises(DataError, match=r"no column 'own' .data.vectors.; there are item, genre, title, user and age"):
        loaded(tmp_path, NEW.replace("\n", ",0 1\n").replace("split,0 1", "split,own"), vectors=["own"])  # of events there are none


def test_a_new_item_is_what_its_columns_say_and_so_is_a_share_of_the_others_while_learning():
    facts = [{"name": "theme", "kind": "category", "of": "item", "values": ["x", "y"]},
             {"name": "text", "kind": "vector", "of": "item", "length": 3, "std": 1.0}]
    store = FeatureStore({"theme": ([6], "int32"), "text": ([6, 3], "float32")})
    store.fill({"theme": np.int32([0, 1, 2, 1, 1, 2]), "text": np.float32(np.vstack([np.zeros(3), np.tile([1, 2, 3], (5, 1))]))})
    layer = EntityVectors(6, 4, new=2, store=store, facts=facts, bias=True, id_dropout=0.4, deviation=1.0, name="item")
    layer.bias.embeddings.assign(tf.range(4.0)[:, None])
    layer.level.kernel.assign(tf.ones([4, 1]))
    vectors, bias = (value.numpy() for value in layer.all())
    columns = layer._described(store(tf.range(6))).numpy()
    np.testing.assert_allclose(vectors[4:], columns[4:], rtol=1e-6)
    np.testing.assert_allclose(bias[4:], columns[4:].sum(1), rtol=1e-5)
    np.testing.assert_allclose(vectors[1:4], columns[1:4] + layer.own.embeddings.numpy()[1:4], rtol=1e-5)
    np.testing.assert_allclose(bias[1:4], [*(columns[1:4].sum(1) + np.arange(1, 4))], rtol=1e-5)
    numbers = tf.fill([2000], 2)
    learned, levels = layer(numbers, training=True)
    alone = np.abs(learned.numpy() - columns[2]).max(1) < 1e-6
    assert 0.35 < alone.mean() < 0.45
    np.testing.assert_allclose(learned[~alone], np.tile(vectors[2], (int((~alone).sum()), 1)), rtol=1e-5)  # not scaled up
    np.testing.assert_array_equal(np.abs(levels.numpy() - columns[2].sum()) < 1e-4, alone)  # vector and bias together
    in_windows, _ = layer(tf.fill([3, 2], 5), training=True)
    np.testing.assert_allclose(in_windows, np.broadcast_to(columns[5], (3, 2, 4)), rtol=1e-5)


def test_that_nobody_had_a_new_item_teaches_nothing_of_it():
    features = [{"name": "theme", "kind": "category", "of": "item", "values": ["x", "y"]}]
    model = SEQUENTIAL_MODELS.build(Hstu(name="hstu", length=4, width=8), sampled=False, features=features, users=3, items=6, events=9, k=3,
                                    chunk=64, new_items=2)
    found = model.learn({"history": tf.constant([[1, 2, 3, 4]])}, training=True)
    chances = tf.nn.softmax(tf.einsum("blw,iw->bli", found["hidden"], found["items"]) + found["bias"]).numpy()
    assert chances[..., 5:].max() == 0.0 and chances[..., 1:5].min() > 0.0
    drawn = Sampler(np.array([0, 5, 1, 2, 1, 0, 0]), 0.5, new=2).draw(4000, tf.constant([1, 2])).numpy()
    assert set(drawn) == {1, 2, 3, 4}


def test_lists_of_new_items_alone_are_those_where_only_they_are_allowed():
    rng = np.random.default_rng(3)
    items, queries, bias = (tf.constant(rng.normal(size=shape).astype(np.float32)) for shape in ((13, 4), (6, 4), (13,)))
    seen = tf.constant(rng.integers(0, 13, (6, 3)), tf.int32)
    more = {"known": tf.constant([True] * 5 + [False]), "popularity": tf.range(13.0), "seen": seen}
    for chunk in (2, 64):
        found = among_last(products(queries, items, bias), 5, k=7, chunk=chunk, **more)
        allow = tf.tile(tf.range(8, 13)[None], [6, 1])
        wanted = recommend(products(queries, items, bias), allow=allow, k=5, chunk=chunk, **more)["items"]
        np.testing.assert_array_equal(found, wanted)


def test_content_is_the_cosine_of_rare_values_and_of_vectors():
    rng = np.random.default_rng(1)
    codes, vectors = rng.integers(0, 4, (9, 2)), rng.normal(size=(9, 3)).astype(np.float32)
    codes[0], vectors[0], codes[4] = 0, 0, 0
    counts = np.array([0, 3, 1, 4, 1, 5, 9, 0, 0])
    facts = [{"name": "tags", "kind": "list", "of": "item"}, {"name": "text", "kind": "vector", "of": "item"}]
    fitted = content.fit(facts, {"tags": codes, "text": vectors}, counts, None, timely=False)
    history = ages(np.array([0, 0, 1]), np.array([2, 5, 4]), 2, 8)
    there = np.zeros((9, 3), np.float32)
    for value in range(1, 4):
        there[:, value - 1] = (codes == value).any(1)
    rare = TfidfTransformer().fit(there[counts > 0]).transform(sparse.csr_matrix(there))
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    wanted = [(cosine_similarity(kind[[2, 5]].sum(0).reshape(1, -1), kind)) for kind in (rare.toarray(), vectors / lengths)]
    np.testing.assert_allclose(fitted(history)[0], np.mean(wanted, 0)[0], atol=1e-5)
    assert not fitted(history)[1].any() or np.abs(fitted(history)[1] - cosine_similarity(vectors[[4]], vectors)[0] / 2).max() < 1e-5
    assert content.fit([{"name": "year", "kind": "number", "of": "item"}], {"year": np.zeros(9)}, counts, None, timely=True) is None


def test_chance_is_the_mean_of_lists_in_random_order():
    rng, held = np.random.default_rng(0), np.array([1, 3, 12])
    found = []
    for _ in range(4000):
        lists = np.array([rng.permutation(20)[:10] for _ in held])
        found.append(per_user.per_user(lists < held[:, None], held, 10)["ndcg"].mean())
    assert per_user.by_chance(held, 10, 20) == pytest.approx(np.mean(found), abs=0.005)
    assert per_user.by_chance(np.array([2]), 10, 4) == pytest.approx(2 / 4 * sum(1 / np.log2([2, 3, 4, 5])) / sum(1 / np.log2([2, 3])))


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    from pipelines.serving.load import load_run

    folder = tmp_path_factory.mktemp("shop")
    themes, groups = shop(folder)
    settings = from_dict({
        "task": "recsys.retrieval",
        "data": {"source": "table", "path": str(folder / "log.csv"), "time_key": "time", "split_key": "split",
                 "items": str(folder / "items.csv"), "users": str(folder / "users.csv"),
                 "categories": ["theme", "group"], "numbers": ["age"]},
        "model": {"name": "towers", "width": 16, "history": 5},
        "evaluate": {"bootstrap": 100}, "monitor": {"tensorboard": False},
        "train": {"epochs": 30, "batch_size": 256, "precision": "float32", "devices": "cpu", "learning_rate": {"peak": 0.01}},
    }, [])
    run = RunFolder(folder / "runs" / "shop")
    report = train(settings, run, Call("shop", task_class("recsys.retrieval"), quiet=True))
    return load_run(run, where="cpu"), report, themes, groups


@pytest.mark.slow(seconds=15)
def test_the_rating_of_a_new_item_is_that_of_its_kind(tmp_path):
    from pipelines.serving.load import load_run
    from pipelines.serving.predict import Predictor

    themes, _ = shop(tmp_path)
    settings = from_dict({
        "task": "recsys.ranking",
        "data": {"source": "table", "path": str(tmp_path / "log.csv"), "rating_key": "rating", "time_key": "time", "split_key": "split",
                 "items": str(tmp_path / "items.csv"), "users": str(tmp_path / "users.csv"), "categories": ["theme", "group"]},
        "model": {"name": "dcn", "width": 4, "hidden": [8], "history": 5},
        "evaluate": {"bootstrap": 100}, "monitor": {"tensorboard": False},
        "train": {"epochs": 20, "batch_size": 256, "precision": "float32", "devices": "cpu", "learning_rate": {"peak": 0.01}},
    }, [])
    run = RunFolder(tmp_path / "runs" / "ratings")
    report = train(settings, run, Call("ratings", task_class("recsys.ranking"), quiet=True))
    (new,) = [row for row in report["tables"]["test/by_group"] if row["group"] == "item's events in train 0"]
    assert new["rmse"] < 0.6  # 0.25 is noise; themes spread 1.4
    known, unknown = Predictor(load_run(run, where="cpu")).predict(["u3,i4", "u3,i900"])
    assert known.values["known"] and abs(known.values["prediction"] - themes[4]) < 0.8 and not unknown.values["known"]


def listed(one):
    return np.asarray(one.values["items"]).tolist()


@pytest.mark.slow(seconds=30)
class TestARun:
    def test_new_items_and_users_are_recommended_and_judged_apart(self, ran):
        _, report, *_ = ran
        rows = {row["judged"]: row for row in report["tables"]["test/new_and_known"]}
        assert list(rows) == ["new users", "known users", "items that train does not have", "the same, among themselves"]
        new, alone = rows["new users"], rows["the same, among themselves"]
        assert new["users"] == 60 and new["model, ndcg@10"] > 1.5 * new["popularity, ndcg@10"]  # their columns say what they want
        assert alone["model, ndcg@10"] > 1.5 * alone["chance, ndcg@10"] and alone["content, ndcg@10"] > 1.2 * alone["chance, ndcg@10"]
        everything = rows["items that train does not have"]
        assert everything["model, ndcg@10"] > 2 * everything["item_knn, ndcg@10"] and everything["of items that train has"] == 0.0
        notes = report["notes"]
        assert sum("not in train: their columns say" in note for note in notes) == 2
        assert sum(note.startswith("Baseline content: by the columns of items, decay ") for note in notes) == 1

    def test_a_request_says_what_is_known_of_a_user(self, ran, tmp_path):
        from pipelines.serving.predict import Predictor

        run, _, themes, groups = ran
        lines = table(tmp_path, "group,age\ng1,21\ng3,\n", "people.csv")
        own = f'"group": "g{groups[4]}", "age": {20 + groups[4]}'
        asked = ['{"group": "g1"}', "nobody", '{"user": "u4", "k": 5}', f'{{"user": "u4", {own}, "k": 5}}', '{"history": ["i4", "i9"]}',
                 '{"similar": "i4"}', '{"group": "g1", "age": "old"}', str(lines)]
        first, nobody, stored, said, past, like, wrong, *rows = Predictor(run).predict(asked)

        def share(one, theme):
            return np.mean([themes[int(item[1:])] == theme for item in listed(one)[:10]])

        assert share(first, 1) > 0.5 and first.values["based_on"] == "the user's columns given" and not first.values["fallback"]
        assert nobody.values["fallback"] and "is no number" in str(wrong.error)
        assert listed(stored) == listed(said) and len(listed(stored)) == 5 and stored.values["based_on"] == "the user"
        assert past.values["based_on"] == "the history given" and not past.values["fallback"]  # of items that train does not have
        assert share(like, themes[4]) > 0.8
        assert share(rows[0], 1) > 0.5 and share(rows[1], 3) > 0.5

    def test_the_saved_model_answers_likewise(self, ran):
        from pipelines.serving.export import Served
        from pipelines.serving.predict import Predictor

        run, *_ = ran
        asked = ({"group": "g2"}, {"user": "u4"}, {"user": "u3", "allow": ["i4", "i9", "i14"]})
        rows = [run.task.input.requests.take(one) for one in asked]
        assert set(rows[0]) == {"user", "history", "allow", "similar", "exclude_seen", "k", "group", "age"}
        raw = {name: tf.constant([one[name] for one in rows]) if name not in ("history", "allow") else tf.ragged.constant(
            [one[name] for one in rows]).to_tensor("") for name in rows[0]}
        saved = Served(run, None).signature()(**raw)
        answers = list(Predictor(run).predict(list(map(json.dumps, asked))))
        for row, one in enumerate(answers):
            count = int(saved["count"][row])
            assert [item.decode() for item in saved["items"][row, :count].numpy()] == listed(one)
        assert set(listed(answers[2])) == {"i4", "i9", "i14"}  # new ones may be all that is wanted
        assert run.task.facts["new_items"] == 30 and run.task.facts["new_users"] == 60
