"""Text that came from strangers, for terminals and logs: kinds, names of tenants, errors that quote payloads."""


def escaped(text: str, *, keep: str = "") -> str:
    """Return `text` with all characters that cannot be printed, such as control characters, spelled out.

    `but`: those that stay.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else ascii(each)[1:-1] for each in text)
