"""Today's terms of the fold, and the catalogues by which the terms of a commit can be had again."""

from collections.abc import Iterable

from processor.core.gate import NoCatalogue, Rules
from processor.core.terms import Terms, TermsMark
from processor.runtime.errors import RestoreRefused


class KnownTerms:
    """`today` decides new records; `previous` are catalogues that earlier commits may name."""

    def __init__(self, today: Terms, previous: Iterable[Rules] = ()) -> None:
        self.today = today
        self._by_digest: dict[str | None, Rules] = {
            rules.digest: rules for rules in (NoCatalogue(), *previous, today.rules)
        }

    def known(self, mark: TermsMark) -> Terms:
        """The terms that a commit names.

        Raises: `RestoreRefused` when their catalogue was not given.
        """
        rules = self._by_digest.get(mark.catalogue_digest)
        if rules is None:
            raise RestoreRefused(
                "catalogue_unknown: calls are open that were begun under the catalogue with digest"
                f" {mark.catalogue_digest}. Give its file as well, with --previous-catalogue, until"
                " those calls have ended"
            )
        return Terms(mark.limits, rules, mark.wait_for_response)
