"""The cooperative-sticky assignment: balanced, moving as little as possible, in two rounds.

Rules:
    A partition that moves is given to nobody in the round that takes it from its owner (KIP-429).
    A claim of an older generation does not count against a newer one.
"""

from collections.abc import Mapping

from processor.core._record import record


@record
class Claim:
    """What a member said it owns when it joined, and since which generation."""

    owned: frozenset[int]
    generation: int


def assign(claims: Mapping[str, Claim], partitions: int) -> dict[str, frozenset[int]]:
    """Who gets which partition in this round.

    `claims` by member id; their order decides who gets the odd partition when nobody owns it.
    """
    if not claims:
        return {}
    owner = _owners(claims, partitions)
    least, extra = divmod(partitions, len(claims))
    # Those who own most keep the odd ones, so that fewer partitions move.
    ranked = sorted(claims, key=lambda m: -sum(1 for o in owner.values() if o == m))
    quota = {m: least + (1 if rank < extra else 0) for rank, m in enumerate(ranked)}
    given: dict[str, set[int]] = {m: set() for m in claims}
    moving: set[int] = set()
    for partition, member in sorted(owner.items()):
        if len(given[member]) < quota[member]:
            given[member].add(partition)
        else:
            moving.add(partition)
    for partition in range(partitions):
        if partition in owner:
            continue
        taker = max(claims, key=lambda m: quota[m] - len(given[m]))
        given[taker].add(partition)
    return {m: frozenset(found) for m, found in given.items()}


def _owners(claims: Mapping[str, Claim], partitions: int) -> dict[int, str]:
    owner: dict[int, str] = {}
    for member, claim in claims.items():
        for partition in claim.owned:
            if partition >= partitions:
                continue
            other = owner.get(partition)
            if other is None or claims[other].generation < claim.generation:
                owner[partition] = member
    return owner
