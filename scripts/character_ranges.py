"""Runs of code points, for the scripts that make tables of characters."""


def ranges(characters):
    """Ascending code points as [first, last] of each run without a gap."""
    result = []
    for c in characters:
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result
