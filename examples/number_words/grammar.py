"""Generates a parallel corpus: English sentences about numbers, dates and times of day, with German translations.

    python examples/number_words/grammar.py FOLDER

writes train.en, train.de, valid.en, valid.de, test.en and test.de. The sentences are simple, but not translated word by
word: German says one-and-twenty, writes a number as one word, calls half past seven half eight, and puts the verb, or a
part of it, last. Both languages share names, months and many subwords, so that they can share a dictionary.
"""

import argparse
import random
from collections.abc import Callable
from pathlib import Path

from words import DAYS_IN_MONTH, PARTS_OF_DAY, Pair, date, english_number, german_number, time_of_day, year

PEOPLE = "Anna Ben Clara David Emma Felix Greta Jonas Nina Oskar Simon Viktor".split()
CITIES = [
    *(Pair(name, name) for name in "Berlin Hamburg London Madrid Paris Stuttgart".split()),
    Pair("Munich", "München"),
    Pair("Cologne", "Köln"),
    Pair("Vienna", "Wien"),
    Pair("Rome", "Rom"),
]
WEEKDAYS = [
    Pair("Monday", "Montag"),
    Pair("Tuesday", "Dienstag"),
    Pair("Wednesday", "Mittwoch"),
    Pair("Thursday", "Donnerstag"),
    Pair("Friday", "Freitag"),
    Pair("Saturday", "Samstag"),
    Pair("Sunday", "Sonntag"),
]
THINGS = [  # more than one of each
    Pair("apples", "Äpfel"),
    Pair("books", "Bücher"),
    Pair("flowers", "Blumen"),
    Pair("lamps", "Lampen"),
    Pair("letters", "Briefe"),
    Pair("pears", "Birnen"),
    Pair("pictures", "Bilder"),
    Pair("shoes", "Schuhe"),
    Pair("tickets", "Karten"),
    Pair("trees", "Bäume"),
]
PRICED = [
    Pair("the bicycle", "das Fahrrad"),
    Pair("the book", "das Buch"),
    Pair("the clock", "die Uhr"),
    Pair("the house", "das Haus"),
    Pair("the table", "der Tisch"),
    Pair("the ticket", "die Karte"),
]
VEHICLES = [Pair("train", "Zug"), Pair("bus", "Bus")]
PLACES = [
    Pair("museum", "das Museum"),
    Pair("park", "der Park"),
    Pair("restaurant", "das Restaurant"),
    Pair("school", "die Schule"),
    Pair("bank", "die Bank"),
    Pair("bakery", "die Bäckerei"),
    Pair("library", "die Bücherei"),
]


def random_number(rng: random.Random) -> Pair:
    """Returns a number from 2 to 999 that takes the plural in both languages; all lengths are equally frequent."""
    number = rng.randrange(2, 10 ** rng.randint(1, 3))
    # 101 apples has no unique translation: hundertundein Äpfel, hundertein Äpfel or hunderteins Äpfel.
    number += number % 100 == 1
    return Pair(english_number(number), german_number(number))


def random_date(rng: random.Random) -> Pair:
    """Returns a date of any month, with a year in half of the cases."""
    month = rng.randint(1, 12)
    words = date(rng.randint(1, DAYS_IN_MONTH[month - 1]), month)
    if rng.random() < 0.5:
        return words
    words_of_year = year(rng.randint(1900, 2029))
    return Pair(f"{words.english} {words_of_year.english}", f"{words.german} {words_of_year.german}")


def random_day(rng: random.Random) -> Pair:
    """Returns a weekday or a date, with its preposition."""
    words = rng.choice(WEEKDAYS) if rng.random() < 0.3 else random_date(rng)
    return Pair(f"on {words.english}", f"am {words.german}")


def random_time(rng: random.Random) -> Pair:
    """Returns a time of day in multiples of five minutes, with its preposition."""
    words, part = time_of_day(rng.randint(1, 12), rng.randrange(0, 60, 5)), rng.choice(PARTS_OF_DAY)
    return Pair(f"at {words.english}{part.english}", f"um {words.german}{part.german}")


# ---------------------------------------------------------------------------------------------------------------------
# Sentences: one function per kind
# ---------------------------------------------------------------------------------------------------------------------


def bare_number(rng: random.Random) -> Pair:
    """A number of one to four digits."""
    number = rng.randrange(10 ** rng.randint(1, 4))
    return Pair(english_number(number), german_number(number))


def journey(rng: random.Random) -> Pair:
    """A separable verb: fährt ... ab; in a subordinate clause one word at the end: abfährt."""
    vehicle, city, time, person = rng.choice(VEHICLES), rng.choice(CITIES), random_time(rng), rng.choice(PEOPLE)
    if rng.random() < 0.5:
        english, german = f"to {city.english} leaves", f"nach {city.german}"
        first, last = "fährt", "ab"
    else:
        english, german = f"from {city.english} arrives", f"aus {city.german}"
        first, last = "kommt", "an"
    english, german = f"the {vehicle.english} {english} {time.english}", f"der {vehicle.german} {german}"
    if rng.random() < 0.5:
        return Pair(english, f"{german} {first} {time.german} {last}")
    return Pair(f"{person} knows that {english}", f"{person} weiß, dass {german} {time.german} {last}{first}")


def opening_hours(rng: random.Random) -> Pair:
    """A separable verb, and a place with its gender."""
    place, time = rng.choice(PLACES), random_time(rng)
    verb, piece = rng.choice([("opens", "auf"), ("closes", "zu")])
    return Pair(f"the {place.english} {verb} {time.english}", f"{place.german} macht {time.german} {piece}")


def habit(rng: random.Random) -> Pair:
    """The separable verb of getting up: steht ... auf."""
    person, time = rng.choice(PEOPLE), random_time(rng)
    return Pair(f"{person} gets up {time.english}", f"{person} steht {time.german} auf")


def birth(rng: random.Random) -> Pair:
    """A participle at the end."""
    person, day = rng.choice(PEOPLE), random_date(rng)
    return Pair(f"{person} was born on {day.english}", f"{person} wurde am {day.german} geboren")


def meeting(rng: random.Random) -> Pair:
    """Day before time in German, after it in English."""
    one, other = rng.sample(PEOPLE, 2)
    day, time = rng.choice(WEEKDAYS), random_time(rng)
    return Pair(
        f"{one} meets {other} {time.english} on {day.english}", f"{one} trifft {other} am {day.german} {time.german}"
    )


def purchase(rng: random.Random) -> Pair:
    """The perfect tense: number and object come before the participle."""
    person, number, thing = rng.choice(PEOPLE), random_number(rng), rng.choice(THINGS)
    return Pair(
        f"{person} bought {number.english} {thing.english}", f"{person} hat {number.german} {thing.german} gekauft"
    )


def price(rng: random.Random) -> Pair:
    """Word for word, except for the number."""
    article, number = rng.choice(PRICED), random_number(rng)
    return Pair(f"{article.english} costs {number.english} euros", f"{article.german} kostet {number.german} Euro")


SENTENCES: tuple[Callable[[random.Random], Pair], ...] = (
    # Numbers, days and times alone are learnt faster, and help with the sentences.
    bare_number,
    random_day,
    random_time,
    journey,
    opening_hours,
    habit,
    birth,
    meeting,
    purchase,
    price,
)


def corpus(seed: int, size: int) -> list[Pair]:
    """Returns `size` pairs in random order; no two have the same English or the same German sentence."""
    rng = random.Random(seed)
    pairs: list[Pair] = []
    seen: set[str] = set()
    while len(pairs) < size:
        pair = rng.choice(SENTENCES)(rng)
        if not seen.intersection(pair):
            seen.update(pair)
            pairs.append(pair)
    return pairs


def write_corpus(folder: Path, seed: int, sizes: dict[str, int]) -> None:
    """Writes one file per split and language: train.en, train.de, ...

    Args:
        folder: the folder, created if missing.
        seed: as for `corpus`.
        sizes: number of sentences by split; splits share no sentence.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pairs = iter(corpus(seed, sum(sizes.values())))
    for split, size in sizes.items():
        part = [next(pairs) for _ in range(size)]
        (folder / f"{split}.en").write_text("".join(f"{pair.english}\n" for pair in part), encoding="utf-8")
        (folder / f"{split}.de").write_text("".join(f"{pair.german}\n" for pair in part), encoding="utf-8")


def create_parser() -> argparse.ArgumentParser:
    """Returns the parser of this file's command line."""
    parser = argparse.ArgumentParser(description="Write a generated English-German corpus.")
    parser.add_argument("folder", type=Path, help="where to write")
    parser.add_argument(
        "--seed", type=int, default=1, help="the same seed gives the same corpus (default: %(default)s)"
    )
    parser.add_argument("--train", type=int, default=14_000, metavar="N", help="sentences (default: %(default)s)")
    parser.add_argument("--valid", type=int, default=500, metavar="N", help="sentences (default: %(default)s)")
    parser.add_argument("--test", type=int, default=500, metavar="N", help="sentences (default: %(default)s)")
    return parser


def main() -> None:
    """Writes the corpus, as set on the command line."""
    parser = create_parser()
    arguments = parser.parse_args()
    sizes = {"train": arguments.train, "valid": arguments.valid, "test": arguments.test}
    for split, size in sizes.items():
        if size < 0:
            parser.error(f"--{split}: needs 0 sentences or more; got {size}. Use 500, say.")
    write_corpus(arguments.folder, arguments.seed, sizes)


if __name__ == "__main__":
    main()
