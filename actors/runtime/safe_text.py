"""Untrusted text, for terminals and logs: kinds, names of tenants, errors that quote payloads."""


def escaped(text: str, *, keep: str = "") -> str:
    """Return `text` with all unprintable characters, such as control characters, escaped.

    `keep`: characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else ascii(each)[1:-1] for each in text)
