"""Pieces of words: learned by sentencepiece (Kudo and Richardson 2018), applied longest first, in graph.

Each word, with ▁ before it, is cut into the longest piece that it begins with, then the longest that the rest begins with, and so on
(as WordPiece does, Wu et al. 2016): a function of the pieces alone, which TensorFlow computes for all distinct words of a batch at once.
"""

import io
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf

from nlp.settings import Subwords
from nlp.tokens.base import FIRST, UNKNOWN, Cut, Tokenizer, finder
from nlp.tokens.normalise import words as split_words
from pipelines.base.errors import DataError

BEGIN = "\u2581"
LONGEST = 16  # characters of a piece
PATIENCE = 64  # pieces of a word beyond which the rest of it is left out
SENTENCE = 4096  # bytes handed to the trainer at a time; it skips longer ones


def learn(settings: Subwords, batches: Iterable[tf.Tensor]) -> list[str]:
    """The pieces, as sentencepiece orders them; fewer than asked for where the texts have no more.

    Raises:
        DataError: the texts are too few to learn from.
    """
    remedy = "set a smaller tokens.vocabulary, or tokens.name: words"
    return learn_pieces(_sentences(settings, batches), settings.vocabulary, settings.algorithm, remedy)


def learn_pieces(sentences: Iterator[str], vocabulary: int, algorithm: str, remedy: str) -> list[str]:
    """As `learn`, of sentences."""
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences, model_writer=model, vocab_size=vocabulary, hard_vocab_limit=False,
            model_type=algorithm, normalization_rule_name="identity", character_coverage=0.9999, max_sentencepiece_length=LONGEST,
            num_threads=2, input_sentence_size=2_000_000, shuffle_input_sentence=False, bos_id=-1, eos_id=-1, minloglevel=2)
    except (RuntimeError, OSError) as error:
        raise DataError(f"tokens: sentencepiece cannot learn {vocabulary:,} pieces from these texts: "
                        f"{str(error).strip().splitlines()[-1]}; {remedy}") from error
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = (processor.id_to_piece(number) for number in range(processor.get_piece_size()) if not processor.is_unknown(number))
    return list(dict.fromkeys(pieces))


def _sentences(settings: Subwords, batches: Iterable[tf.Tensor]) -> Iterator[str]:
    for batch in batches:
        joined = tf.strings.reduce_join(split_words(batch, lower=settings.lower, html=settings.html), axis=1, separator=" ")
        for text in joined.numpy().tolist():
            yield from lines(text.decode("utf-8", "replace").split(" "))


def lines(words: Iterable[str]) -> Iterator[str]:
    """Words with blanks between them, in lines that sentencepiece does not skip."""
    line: list[str] = []
    size = 0
    for word in words:
        size += len(word) * 4 + 1
        if size > SENTENCE and line:
            yield " ".join(line)
            line, size = [], len(word) * 4 + 1
        line.append(word)
    if line:
        yield " ".join(line)


def make(settings: Subwords, pieces: list[str]) -> Tokenizer:
    """Numbers are 2 + the piece's place; 1 for each character that no piece begins with."""
    find = finder(pieces, FIRST, UNKNOWN)
    longest = max((len(piece) for piece in pieces), default=1)

    def split(texts: tf.Tensor) -> tf.RaggedTensor:
        return split_words(texts, lower=settings.lower, html=settings.html)[:, : settings.limit]

    def cut(texts: tf.Tensor) -> Cut:
        words = split(texts)
        return cut_words(words.with_flat_values(tf.strings.join([BEGIN, words.flat_values])), find, longest, settings.limit)

    return Tokenizer(FIRST + len(pieces), split, cut)


def cut_words(words: tf.RaggedTensor, find: Callable[[tf.Tensor], tf.Tensor], longest: int, limit: int) -> Cut:
    """Words [texts, None] string, with BEGIN where it stands before them, each into the pieces that `find` knows, the longest first."""
    distinct, which = tf.unique(words.flat_values)
    pieces_of = tf.gather(_pieces(distinct, find, longest), which)  # [words, None]
    places = tf.cast(tf.ragged.range(words.row_lengths()), tf.int32).flat_values
    owner = tf.gather(places, pieces_of.value_rowids())
    splits = tf.gather(pieces_of.row_splits, words.row_splits)
    ids, place = (tf.RaggedTensor.from_row_splits(value, splits)[:, :limit] for value in (pieces_of.flat_values, owner))
    return Cut(ids, place, place)


def _pieces(words: tf.Tensor, find: Callable[[tf.Tensor], tf.Tensor], longest: int) -> tf.RaggedTensor:
    """[n] string -> [n, None] int32, the longest piece first, all words at once: a round finds one piece of each."""
    lengths = tf.strings.length(words, unit="UTF8_CHAR")
    count = tf.size(words)

    def going(at: tf.Tensor, *_) -> tf.Tensor:
        return tf.reduce_any(at < lengths)

    def round_(at: tf.Tensor, turn: tf.Tensor, ids: tf.TensorArray) -> tuple:
        number, size = tf.fill([count], UNKNOWN), tf.ones([count], tf.int32)
        start = tf.minimum(at, lengths)
        for width in range(1, longest + 1):
            piece = tf.strings.substr(words, start, tf.fill([count], width), unit="UTF8_CHAR")
            here = tf.where(at + width <= lengths, find(piece), UNKNOWN)
            number, size = tf.where(here != UNKNOWN, here, number), tf.where(here != UNKNOWN, width, size)
        ids = ids.write(turn, tf.where(at < lengths, number, 0))
        return tf.where(at < lengths, at + size, at), turn + 1, ids

    state = (tf.zeros([count], tf.int32), tf.constant(0), tf.TensorArray(tf.int32, 0, dynamic_size=True, element_shape=[None]))
    _, _, ids = tf.while_loop(going, round_, state, maximum_iterations=PATIENCE)
    rounds = ids.stack()  # [rounds, words]; gathered, since oneDNN cannot transpose integers and logs an error
    places = tf.range(count)[:, None] + count * tf.range(tf.shape(rounds)[0])
    return tf.RaggedTensor.from_tensor(tf.gather(tf.reshape(rounds, [-1]), places), padding=0)
