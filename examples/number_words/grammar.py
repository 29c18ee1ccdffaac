"""A generated parallel corpus: English sentences about numbers, dates and times of day, and their German translations.

    python examples/number_words/grammar.py FOLDER

writes train.en, train.de, valid.en, valid.de, test.en and test.de. The sentences are simple, but translating them takes
what translation takes: German counts one-and-twenty, writes a number as one word, calls half past seven half eight, and
puts the verb, or a piece of it, at the end. The languages share names, months and many pieces of words, so that one
dictionary can serve both.
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
    """Returns a number from 2 to 999, of any length equally often, that the plural can follow in both languages."""
    number = rng.randrange(2, 10 ** rng.randint(1, 3))
    # 101 apples are hundertundein Äpfel or hundertein Äpfel or hunderteins Äpfel: not one German sentence.
    number += number % 100 == 1
    return Pair(english_number(number), german_number(number))


def random_date(rng: random.Random) -> Pair:
    """Returns a date of any month, half of the time with its year."""
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
# Sentences: one function for each kind
# ---------------------------------------------------------------------------------------------------------------------


def bare_number(rng: random.Random) -> Pair:
    """A number alone, of one to four digits."""
    number = rng.randrange(10 ** rng.randint(1, 4))
    return Pair(english_number(number), german_number(number))


def journey(rng: random.Random) -> Pair:
    """A verb in two pieces: fährt ... ab; in a subordinate clause it is one word at the end: abfährt."""
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
    """The place brings its gender, the verb its last piece."""
    place, time = rng.choice(PLACES), random_time(rng)
    verb, piece = rng.choice([("opens", "auf"), ("closes", "zu")])
    return Pair(f"the {place.english} {verb} {time.english}", f"{place.german} macht {time.german} {piece}")


def habit(rng: random.Random) -> Pair:
    """Getting up: steht ... auf."""
    person, time = rng.choice(PEOPLE), random_time(rng)
    return Pair(f"{person} gets up {time.english}", f"{person} steht {time.german} auf")


def birth(rng: random.Random) -> Pair:
    """The participle waits for the end."""
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
    """The perfect tense: how many of what comes before the participle."""
    person, number, thing = rng.choice(PEOPLE), random_number(rng), rng.choice(THINGS)
    return Pair(
        f"{person} bought {number.english} {thing.english}", f"{person} hat {number.german} {thing.german} gekauft"
    )


def price(rng: random.Random) -> Pair:
    """Word for word, but for the number."""
    article, number = rng.choice(PRICED), random_number(rng)
    return Pair(f"{article.english} costs {number.english} euros", f"{article.german} kostet {number.german} Euro")


SENTENCES: tuple[Callable[[random.Random], Pair], ...] = (
    # Alone, numbers, days and times are learnt faster, and what is learnt serves the sentences.
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
    """Returns distinct sentences, in random order.

    Args:
        seed: the same seed gives the same sentences.
        size: number of sentences.

    Returns:
        Pairs of which no two have the same English or the same German sentence.
    """
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
    """Writes one file a split and language: train.en, train.de, ...

    Args:
        folder: is made if it is not there.
        seed: as for `corpus`.
        sizes: number of sentences by split; no sentence is in two splits.
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
    """Writes the corpus that the command line asks for."""
    arguments = create_parser().parse_args()
    sizes = {"train": arguments.train, "valid": arguments.valid, "test": arguments.test}
    write_corpus(arguments.folder, arguments.seed, sizes)


if __name__ == "__main__":
    main()
