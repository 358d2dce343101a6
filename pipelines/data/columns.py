"""The probable roles of a table's columns: by their names, in many spellings and languages, and by their values.

The names are shared by all domains; a domain chooses its roles, and what to do where several columns fit one.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pipelines.data.divide import ALIASES

# role -> names, the surest first; as `plain` writes them, languages one after the other (en, de, fr, es, it, pt, nl)
NAMES: dict[str, str] = {
    "user": """user_id user users uid customer customer_id customer_name client client_id visitor visitor_id member member_id reviewer
        reviewer_id reviewer_name account account_id person person_id player player_id listener reader viewer buyer consumer subscriber
        user_name username profile_name profile guest session session_id author
        nutzer benutzer kunde kunden kundennummer kunden_nr besucher mitglied
        utilisateur acheteur membre visiteur usager usuario cliente comprador miembro visitante utente acquirente visitatore utilizador
        gebruiker klant""",
    "item": """item_id item items iid asin parent_asin product_id product prod movie_id movie film book_id book isbn song_id song track_id
        track artist_id artist album game game_id app app_id article_id article sku stock_code stockcode place place_id location_id
        location venue venue_id poi business business_id restaurant restaurant_id hotel hotel_id recipe recipe_id joke joke_id video
        video_id anime anime_id content_id media media_id show page url news_id news course course_id goods offer offer_id ad ad_id
        beer beer_id wine podcast event_id category_id product_name product_title item_name movie_title description
        artikel artikelnummer artikel_nr produkt ware buch produit livre producto articulo pelicula libro prodotto articolo produto artigo
        filme livro artiest""",
    "rating": """rating ratings stars star_rating star score scores user_rating overall rate overall_rating grade points mark vote votes
        review_rating review_score review_overall
        bewertung sterne note punkte evaluation etoiles calificacion puntuacion valoracion nota estrellas valutazione voto punteggio stelle
        avaliacao classificacao pontuacao estrelas beoordeling cijfer""",
    "time": """timestamp time datetime date_time date ts created_at created t_dat event_time unix_review_time unixreviewtime
        review_time reviewtime review_date rated_at date_added added_at updated_at when day order_date invoice_date invoicedate
        purchase_date transaction_date posted_at unixtime unix_time epoch
        datum zeit zeitpunkt zeitstempel uhrzeit bestelldatum horodatage heure jour fecha hora marca_de_tiempo data ora orario data_ora
        data_hora tijd tijdstip""",
    "text": """text texts sentence review_text review_body reviewtext review content message body tweet comment utterance query question
        document post sms email mail prompt passage phrase abstract reviews messages sentences comments description full_text
        text_content news article statement
        satz nachricht beitrag kommentar beschreibung inhalt frage rezension texte phrase avis commentaire contenu critique texto frase
        resena opinion comentario mensaje contenido pregunta testo recensione commento messaggio contenuto domanda resenha mensagem conteudo
        pergunta tekst zin bericht""",
    "transcript": """text transcript transcription sentence normalized_text transcript_text utterance words spoken_text
        transkript transkription satz texte phrase transcripcion texto frase trascrizione testo transcricao tekst zin""",
    "title": """title product_title item_title movie_title product_name item_name movie_name headline subject summary name review_title
        review_headline review_summary heading
        titel betreff ueberschrift uberschrift titre objet titulo asunto titolo oggetto assunto""",
    "label": """label labels class class_name classname label_name class_label category categories target intent topic sentiment tag tags y
        classes class_id label_id emotion polarity type kind genre species diagnosis breed outcome command word coarse_label label_coarse
        verdict status result language lang is_spam spam toxic
        klasse kategorie etikett stimmung thema ziel art classe categorie etiquette sujet clase categoria etiqueta sentimiento tema
        objetivo etichetta sentimento rotulo""",
    "split": """split splits subset partition set fold folds kfold part usage phase data_split dataset_split dataset cv_fold
        aufteilung teilmenge ensemble particion conjunto partizione insieme particao""",
    "group": """patient patient_id subject subject_id participant participant_id group group_id site session session_id scene scene_id
        person person_id user user_id donor animal_id slide case case_id family household camera camera_id speaker speaker_id author
        src_file source_file src_id source_id original_file original_id recording_id fsid freesound_id video_id youtube_id ytid
        sprecher proband gruppe locuteur groupe hablante paciente grupo parlante paziente gruppo falante""",
    "speaker": """speaker speaker_id spk spk_id client_id talker user user_id reader reader_id voice person person_id participant
        participant_id subject subject_id
        sprecher sprecherin proband locuteur hablante parlante falante spreker""",
    "file": """file filename file_name path filepath file_path image image_path image_file image_name img img_path img_name image_id img_id
        audio audio_path audio_file audio_filepath wav wav_path wav_file wav_filename speech recording clip sound picture photo
        slice_file_name
        datei dateiname pfad bild aufnahme fichier chemin archivo fichero ruta imagen percorso immagine arquivo caminho imagem bestand
        afbeelding""",
    "click": "click clicked clicks is_click label target converted purchased bought is_clicked klick",
    "start": "start offset begin start_time",
}
_AFFIXES = ("id", "ids", "name", "names", "key", "no", "nr", "nummer", "number", "num", "code", "uuid", "guid", "hash", "index", "idx",
            "value", "column", "col", "text", "my", "the", "raw", "original", "orig")
_ATTRIBUTES = frozenset(("feature", "features", "affinity", "propensity"))  # of users and items, which such columns do not name
FOLDS = ("fold", "folds", "kfold", "cv_fold")
ODD = 0.01  # share of the rows of a column of numbers that may hold something else
ENOUGH = 20  # rows from which one may
LOOKED_AT = 20_000  # characters of a text by which it is known
FEW = 21  # values up to which numbers in a small range are ratings: half stars, -10 to 10


def plain(name: str) -> str:
    """A name in lower case, words joined by `_`, without accents: `userId`, `User ID` and `user-id` are user_id."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", str(name).replace("ß", "ss"))
    letters = "".join(sign for sign in unicodedata.normalize("NFKD", spaced) if not unicodedata.combining(sign))
    return re.sub(r"[^\w]+|_+", "_", letters).strip("_").lower()


@cache
def _ranks(role: str) -> dict[str, int]:
    return {name: rank for rank, name in reversed(list(enumerate(NAMES[role].split())))}


@cache
def _squeezed(role: str) -> dict[str, int]:
    return {known.replace("_", ""): rank for known, rank in reversed(_ranks(role).items())}


def fit(name: str, role: str) -> float | None:
    """How well a column's name fits a role, 0 the best; None where it does not fit."""
    ranks, own = _ranks(role), plain(name)
    run_together = own.replace("_", "")
    if own in ranks:
        return float(ranks[own])
    squeezed = _squeezed(role)
    if run_together in squeezed:
        return squeezed[run_together] + 0.5
    words = own.split("_")
    if not _ATTRIBUTES.isdisjoint(words):
        return None
    kept = [word for word in words if word not in _AFFIXES and not word.isdigit()]
    stem = "_".join(kept)
    if kept and kept != words and stem in ranks:
        return 200.0 + ranks[stem]
    if len(kept) > 1:  # the last word of a compound says what it is
        for word in (kept[-1], kept[0]):
            if word in ranks and len(word) > 3:
                return (400.0 if word == kept[-1] else 600.0) + ranks[word]
    return None


def by_name(columns: Iterable[str], roles: Sequence[str], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Role -> column, for the roles that a name fits; each column has one role, the best fits first (the earlier role of equals).

    Args:
        known: roles whose columns are known already.
    """
    columns_by_role = dict(known or {})
    fits = sorted((how, roles.index(role), place, role, name) for place, name in enumerate(columns) for role in roles
                  if (how := fit(name, role)) is not None)
    for _, _, _, role, name in fits:
        if role not in columns_by_role and name not in columns_by_role.values():
            columns_by_role[role] = name
    return columns_by_role


@dataclass(frozen=True)
class Facts:
    """The facts of a column's values.

    Attributes:
        kind: "number", "text", "list" (several values in a row) or "other" (bytes, dates, objects).
        rows, present, distinct: all rows, those with a value, and the different values.
        whole: numbers without fraction.
        low, high: the smallest and the largest number.
        length: mean characters of a text.
        words: mean words of a text.
        odd: rows of a column of numbers that hold something else, at most a hundredth; odd_value: one of these.
    """

    kind: str
    rows: int
    present: int
    distinct: int
    whole: bool = False
    low: float = 0.0
    high: float = 0.0
    length: float = 0.0
    words: float = 0.0
    odd: int = 0
    odd_value: str = ""

    @property
    def looks_rated(self) -> bool:
        """Few numbers in a small range, which repeat: -10 to 10, half stars."""
        if self.kind != "number" or not self.distinct >= 2 or not -10 <= self.low <= self.high <= 100:
            return False
        return self.distinct <= FEW and self.distinct * 3 <= self.rows and (self.high - self.low <= 20 or self.high in (100.0, 50.0))

    @property
    def looks_timed(self) -> bool:
        """Numbers that are seconds, ms or us from 1990 to 2060, also mixed, or dates such as 20261121."""
        if self.kind != "number" or self.distinct <= 2:
            return False
        date = self.whole and 19_000_101 <= self.low <= self.high <= 21_001_231
        return date or (self.low >= 6.3e8 and any(6.3e8 * unit <= self.high <= 2.9e9 * unit for unit in (1, 1e3, 1e6)))

    def few(self, share: float) -> bool:
        """Whether there are two values or more, and few of them."""
        return self.kind in ("number", "text") and 2 <= self.distinct <= max(2, self.present * share)


def facts_of(values: Sequence[Any]) -> Facts:
    """The facts of a column, from Python's values; texts that are all numbers count as numbers."""
    rows = len(values)
    there = [value for value in values if value is not None and value != "" and value == value]
    if not there:
        return Facts("other", rows, 0, 0)
    first = there[0]
    if any(isinstance(value, (list, tuple, dict)) for value in there):
        return Facts("list" if isinstance(first, (list, tuple)) else "other", rows, len(there), len({repr(value) for value in there}))
    distinct = set(there)
    numbers, odd_value = _numbers(distinct)
    odd = sum(number_of(value) is None for value in there) if numbers and odd_value is not None else 0
    if numbers and (odd_value is None or (odd <= max(1, ODD * len(there)) and len(there) >= ENOUGH)):
        return Facts("number", rows, len(there), len(set(numbers)), all(number == int(number) for number in numbers),
                     min(numbers), max(numbers), odd=odd, odd_value="" if odd_value is None else str(odd_value))
    if not isinstance(first, str):
        return Facts("other", rows, len(there), len(distinct))
    texts = [str(value) for value in there[:: max(1, len(there) // 2000)]]
    return Facts("text", rows, len(there), len(distinct), length=sum(map(len, texts)) / len(texts),
                 words=sum(len(text[:LOOKED_AT].split()) for text in texts) / len(texts))


def _numbers(values: Collection[Any]) -> tuple[list[float], Any]:
    """(the numbers among different values, one of the others, if any); ([], ...) where others are not rare."""
    numbers, odd, others, most = [], None, 0, max(3, ODD * len(values))
    for value in values:
        number = number_of(value)
        if number is not None:
            numbers.append(number)
            continue
        odd, others = value, others + 1
        if others > most:
            return [], odd
    return numbers, odd


def number_of(value: Any) -> float | None:
    """A number, also written `2,5`; None for anything else, for NaN and for infinities."""
    number: float | None
    try:
        number = float(value)
    except (TypeError, ValueError):
        try:
            number = float(value.replace(",", ".")) if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d*,\d+\s*", value) else None
        except ValueError:
            return None
    return number if number is not None and abs(number) < float("inf") else None


def role_of(value: str) -> str | None:
    """"train", "validation" or "test" for a split of such a name (val, valid, dev, testing, ...)."""
    return next((part for part, names in ALIASES.items() if value.strip().lower() in names), None)


def split_values(name: str, values: Iterable[Any]) -> dict[str, str | None] | None:
    """Role -> value of a column that divides the data: names of splits, or numbers of folds where its name says so.

    Of folds the last is test; `train` is then None: all others, from which what chooses by validation holds out its own. None where it is
    no division.
    """
    values = list(values)
    if any(isinstance(value, (list, dict)) for value in values):
        return None
    distinct = {str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
                for value in set(values) if value is not None}
    if not 2 <= len(distinct) <= 100:
        return None
    roles = {role_of(value): value for value in sorted(distinct)}
    if None not in roles and "train" in roles:
        return {role: value for role, value in roles.items() if role is not None}
    if (fit(name, "split") is None and plain(name) not in FOLDS) or not all(re.fullmatch(r"(fold[ _-]?)?\d{1,2}", value.lower())
                                                                         for value in distinct):
        return None
    ordered = sorted(distinct, key=lambda value: int(re.sub(r"\D", "", value)))
    return {"train": None, "test": ordered[-1]}


def role_in(values: Mapping[str, str | None], value: Any) -> str | None:
    """The role of one value of a column that divides the data, as split_values gave them."""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
    if values.get("train") is not None:
        return role_of(text)
    return next((role for role, own in values.items() if own == text), "train")
