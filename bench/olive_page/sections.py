"""What tables of the page show."""


def ms(value: float, within: float) -> str:
    """Return a mean with its confidence interval, in milliseconds."""
    return f"{value:.3f} ± {within:.3f}"


def reached(is_reached: bool) -> str:
    """Say whether a bar is reached."""
    return "yes" if is_reached else "**no**"
