"""Texts with numbers: `1 message`, `2 messages`."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or the plural.

    Args:
        number: as it is shown, with commas.
        noun: a noun whose plural ends with s.
    """
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def verb(number: int, singular: str, plural: str) -> str:
    """Return the form of a verb for a number of things."""
    return singular if number == 1 else plural
