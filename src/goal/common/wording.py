"""Numbers in sentences."""


def counted(number: int, noun: str) -> str:
    """Say how many: ``1 class``, ``2 classes``, ``1,000 images``."""
    if number != 1:
        noun = "vertices" if noun == "vertex" else noun + ("es" if noun.endswith("s") else "s")
    return f"{number:,} {noun}"


def duration(seconds: float) -> str:
    """Say roughly how long: ``20 s``, ``3 min``, ``2 h 05 min``."""
    whole = max(0, round(seconds))
    if whole < 90:
        return f"{whole} s"
    minutes = round(whole / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
