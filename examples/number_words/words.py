"""English and German words for numbers, years, dates and times of day."""

from typing import NamedTuple


class Pair(NamedTuple):
    """The same words in both languages."""

    english: str
    german: str


# ---------------------------------------------------------------------------------------------------------------------
# Numbers
# ---------------------------------------------------------------------------------------------------------------------

ENGLISH_BELOW_20 = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
ENGLISH_TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
ENGLISH_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
    "twenty": "twentieth",
    "thirty": "thirtieth",
}

GERMAN_BELOW_20 = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn"
).split()
GERMAN_TENS = "null zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
GERMAN_ORDINALS = {1: "erste", 3: "dritte", 7: "siebte", 8: "achte"}


def english_number(number: int) -> str:
    """Returns a number from 0 to 999,999 in English words: 347 is three hundred and forty-seven."""
    check_range("number", number, 0, 999_999)
    if number < 20:
        return ENGLISH_BELOW_20[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return ENGLISH_TENS[tens] + (f"-{ENGLISH_BELOW_20[ones]}" if ones else "")
    if number < 1000:
        hundreds, rest = divmod(number, 100)
        return f"{ENGLISH_BELOW_20[hundreds]} hundred" + (f" and {english_number(rest)}" if rest else "")
    thousands, rest = divmod(number, 1000)
    link = " and " if rest < 100 else " "
    return f"{english_number(thousands)} thousand" + (f"{link}{english_number(rest)}" if rest else "")


def german_number(number: int) -> str:
    """Returns a number from 0 to 999,999 as one German word: 347 is dreihundertsiebenundvierzig."""
    check_range("number", number, 0, 999_999)
    if number < 20:
        return GERMAN_BELOW_20[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return (f"{german_factor(ones)}und" if ones else "") + GERMAN_TENS[tens]
    if number < 1000:
        hundreds, rest = divmod(number, 100)
        return f"{german_factor(hundreds)}hundert" + (german_number(rest) if rest else "")
    thousands, rest = divmod(number, 1000)
    return f"{german_factor(thousands)}tausend" + (german_number(rest) if rest else "")


def german_factor(number: int) -> str:
    """Returns a German number as used before another number: eins loses its s."""
    word = german_number(number)
    return word.removesuffix("s") if number % 100 == 1 else word


def english_ordinal(number: int) -> str:
    """Returns an ordinal from 1 to 39 in English words: 21 is twenty-first."""
    check_range("ordinal", number, 1, 39)
    *tens, last = english_number(number).split("-")
    return "-".join([*tens, ENGLISH_ORDINALS.get(last, f"{last}th")])


def german_ordinal(number: int) -> str:
    """Returns an ordinal from 1 to 39 as a German word: 21 is einundzwanzigste."""
    check_range("ordinal", number, 1, 39)
    regular = german_number(number) + ("te" if number < 20 else "ste")
    return GERMAN_ORDINALS.get(number, regular)


def check_range(what: str, value: int, lowest: int, highest: int) -> None:
    """Raises ValueError if a value has no words here."""
    if not lowest <= value <= highest:
        raise ValueError(f"{what}: needs {lowest} to {highest}; got {value}. Use a value within the range.")


# ---------------------------------------------------------------------------------------------------------------------
# Years, dates, times of day
# ---------------------------------------------------------------------------------------------------------------------

MONTHS = [
    Pair("January", "Januar"),
    Pair("February", "Februar"),
    Pair("March", "März"),
    Pair("April", "April"),
    Pair("May", "Mai"),
    Pair("June", "Juni"),
    Pair("July", "Juli"),
    Pair("August", "August"),
    Pair("September", "September"),
    Pair("October", "Oktober"),
    Pair("November", "November"),
    Pair("December", "Dezember"),
]
DAYS_IN_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
PARTS_OF_DAY = [
    Pair("", ""),
    Pair(" in the morning", " morgens"),
    Pair(" in the afternoon", " nachmittags"),
    Pair(" in the evening", " abends"),
    Pair(" at night", " nachts"),
]


def year(number: int) -> Pair:
    """Returns a year from 1100 to 2099, in pairs of digits in English: 1984 is nineteen eighty-four."""
    check_range("year", number, 1100, 2099)
    if number >= 2000:
        return Pair(english_number(number), german_number(number))
    century, rest = divmod(number, 100)
    if rest == 0:
        ending = "hundred"
    elif rest < 10:
        ending = f"oh {english_number(rest)}"
    else:
        ending = english_number(rest)
    german = f"{german_number(century)}hundert" + (german_number(rest) if rest else "")
    return Pair(f"{english_number(century)} {ending}", german)


def date(day: int, month: int) -> Pair:
    """Returns a date in the form that follows a preposition: (on) the third of May, (am) dritten Mai."""
    check_range("month", month, 1, 12)
    check_range("day", day, 1, DAYS_IN_MONTH[month - 1])
    name = MONTHS[month - 1]
    return Pair(f"the {english_ordinal(day)} of {name.english}", f"{german_ordinal(day)}n {name.german}")


def time_of_day(hour: int, minute: int) -> Pair:
    """Returns a spoken time on a twelve-hour clock: 7:25 is twenty-five past seven, fünf vor halb acht."""
    check_range("hour", hour, 1, 12)
    check_range("minute", minute, 0, 59)
    if minute == 0:
        return Pair(f"{english_number(hour)} o'clock", f"{german_factor(hour)} Uhr")
    return Pair(english_time(hour, minute), german_time(hour, minute))


def english_time(hour: int, minute: int) -> str:
    """Returns the minutes past an hour or, in its second half, to the next hour."""
    if minute == 30:
        return f"half past {english_number(hour)}"
    if minute < 30:
        return f"{english_minutes(minute)} past {english_number(hour)}"
    return f"{english_minutes(60 - minute)} to {english_number(next_hour(hour))}"


def english_minutes(minutes: int) -> str:
    """Returns minutes in English; multiples of five omit the word "minutes"."""
    if minutes == 15:
        return "a quarter"
    words = english_number(minutes)
    if minutes % 5 == 0:
        return words
    return f"{words} minute" if minutes == 1 else f"{words} minutes"


def german_time(hour: int, minute: int) -> str:
    """Returns a time in German: half of the *next* hour; five minutes around the half hour are counted from it."""
    this, following = german_number(hour), german_number(next_hour(hour))
    around_half = {25: "fünf vor halb", 30: "halb", 35: "fünf nach halb"}
    if minute in around_half:
        return f"{around_half[minute]} {following}"
    if minute < 30:
        return f"{german_minutes(minute)} nach {this}"
    return f"{german_minutes(60 - minute)} vor {following}"


def german_minutes(minutes: int) -> str:
    """Returns minutes in German; multiples of five omit the word "Minuten"."""
    if minutes == 15:
        return "Viertel"
    if minutes == 1:
        return "eine Minute"
    words = german_number(minutes)
    return words if minutes % 5 == 0 else f"{words} Minuten"


def next_hour(hour: int) -> int:
    """Returns the following hour on a twelve-hour clock."""
    return hour % 12 + 1
