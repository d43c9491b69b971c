import re
from enum import StrEnum

import pytest

from perdure.api.crdgen import member_docs
from perdure.api.reasons import ConditionReason, ConditionType, EventReason


@pytest.mark.parametrize("enum", [ConditionType, ConditionReason, EventReason])
def test_each_word_is_camel_case_and_explained(enum: type[StrEnum]) -> None:
    docs = member_docs(enum)
    assert set(docs) == {member.value for member in enum}
    for word, text in docs.items():
        assert re.fullmatch("([A-Z][a-z]+)+", word)
        assert text.endswith(".")
        assert enum(word).name == re.sub("(?<=[a-z])(?=[A-Z])", "_", word).upper()


class Undocumented(StrEnum):
    A = "A"


def test_a_member_without_a_docstring_is_rejected() -> None:
    with pytest.raises(ValueError, match="Undocumented must have a docstring under A"):
        member_docs(Undocumented)
