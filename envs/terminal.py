"""Text for terminals of any encoding, with control characters escaped."""

import codecs
import unicodedata

_LIKE = {"\N{EN DASH}": "-", "\N{EM DASH}": "-", "\N{RIGHT SINGLE QUOTATION MARK}": "'"}
REPLACED = "jaxrl.replaced"  # name of a way, for `errors=` of a stream, to write characters that its encoding lacks

__all__ = ["REPLACED", "printable"]


def printable(text: str, lines: bool = False) -> str:
    """Text that a terminal shows as it is: characters that would control it, or are invisible, become escapes.

    Args:
      text: Text, such as a name from a file.
      lines: Whether the ends of lines stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        _escape(character) if _controls(character) and not (lines and character == "\n") else character
        for character in text
    )


def _controls(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] == "C" or category in ("Zl", "Zp")


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Characters that an encoding lacks, by similar ones or escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_LIKE.get(character, _escape(character)) for character in lacking), error.end


codecs.register_error(REPLACED, _replaced)
