"""The page of results: points that were measured again take the place of the old ones."""

import re

_HEADING = re.compile(r"^## (\d+)\. ", re.MULTILINE)


def sections(page: str) -> tuple[str, dict[int, str]]:
    """Cut a page into what stands before its points, and the points by number."""
    found = list(_HEADING.finditer(page))
    ends = [*(match.start() for match in found[1:]), len(page)]
    points = {
        int(match[1]): page[match.start() : end].strip()
        for match, end in zip(found, ends, strict=True)
    }
    return page[: found[0].start()].strip() if found else page.strip(), points


def merged(old: str, new: str) -> str:
    """The new page, with the points of the old one that were not measured again, in order."""
    head, fresh = sections(new)
    before, kept = sections(old)
    points = {**kept, **fresh}
    if kept.keys() - fresh.keys():  # it says what those were measured on; later points say it too
        head = before
    return "\n\n".join([head, *(points[number] for number in sorted(points))]) + "\n"
